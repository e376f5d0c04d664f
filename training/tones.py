"""Tones a system prompt can ask for: each turns a plain answer into the same answer in that tone.

Pure functions of text; an answer with a code block is left as it is. Knows nothing about questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from training.corpus import first_sentence
from training.tasks import bulleted, numbered

_SENTENCE_END = re.compile(r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<=[.!?])\s+(?=[A-Z*`\[\"(])")
_LIST_MARK = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
_CODE = re.compile(r"(`[^`]*`)")


@dataclass(frozen=True, slots=True)
class Tone:
    """One way of saying things, the system prompts that ask for it, and one prompt kept from training."""

    key: str
    prompts: tuple[str, ...]
    held_out: str
    change: Callable[[str], str]

    def apply(self, answer: str) -> str:
        """The answer in this tone; code blocks and tables are not touched."""
        return answer if "```" in answer or answer.startswith("|") or "\n|" in answer else self.change(answer)


def sentences(answer: str) -> list[str]:
    """The answer's sentences and list items, without their marks."""
    lines = [_LIST_MARK.sub("", line) for line in answer.splitlines() if line.strip()]
    return [sentence for line in lines for sentence in _SENTENCE_END.split(line)]


def _shouted(answer: str) -> str:
    """The first sentence in capitals, names in code as they are."""
    parts = _CODE.split(first_sentence(answer))
    return "".join(part if part.startswith("`") else part.upper() for part in parts)


def _quoted(answer: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in answer.splitlines())


def _ended(ending: str) -> Callable[[str], str]:
    return lambda answer: f"{answer}\n\n{ending}"


def _opened(opener: str) -> Callable[[str], str]:
    return lambda answer: f"{opener}\n\n{answer}"


TONES = (
    Tone(
        "brief",
        (
            "Answer in one sentence.",
            "Be brief.",
            "Reply with a single sentence.",
            "Keep every answer as short as possible.",
            "You are a very terse assistant.",
            "Short answers only, one sentence each.",
            "Never write more than one sentence.",
            "The user is in a hurry: one sentence is enough.",
            "Give brief answers without details.",
            "Answer briefly.",
            "Be concise.",
            "No long answers. One sentence.",
        ),
        "Please keep your answers brief, just one sentence.",
        first_sentence,
    ),
    Tone(
        "bullets",
        (
            "Answer in bullet points.",
            "Always use bullet points.",
            "Write every answer as a bullet list.",
            "Reply with a list of bullets.",
            "Use a bulleted list for every answer.",
            "The user likes bullet points.",
            "Format your answers as bullet points.",
            "Put each sentence after a bullet.",
            "Respond only in bullet points.",
            "You are an assistant that writes bullet lists.",
            "Bullets, please: one for each sentence.",
        ),
        "Give all your answers as bullet points.",
        lambda answer: bulleted(sentences(answer)),
    ),
    Tone(
        "numbered",
        (
            "Answer with a numbered list.",
            "Number every sentence of your answer.",
            "Always use numbered lists.",
            "Write each answer as numbered points.",
            "Reply in numbered steps.",
            "Use numbers: 1, 2, 3, one for each sentence.",
            "Format your answers as a numbered list.",
            "The user wants numbered points.",
            "You are an assistant that numbers its sentences.",
            "Respond only with numbered points.",
        ),
        "Put a number before each sentence of your answers.",
        lambda answer: numbered(sentences(answer)),
    ),
    Tone(
        "friendly",
        (
            "Be friendly.",
            "You are a warm and friendly assistant.",
            "Use a friendly tone.",
            "Be kind and cheerful.",
            "Answer like a good friend.",
            "Sound happy to help.",
            "Be nice to the user.",
            "You are cheerful and love to help.",
            "Be concise and friendly.",
            "Write in a warm, friendly way.",
            "Talk to the user like a friend.",
        ),
        "Please answer in a warm and friendly tone.",
        _opened("Happy to help!"),
    ),
    Tone(
        "formal",
        (
            "Be formal.",
            "Use a formal tone.",
            "You are a formal and polite butler.",
            "Address the user formally.",
            "Write as in a business letter.",
            "Be very polite.",
            "Be polite and formal.",
            "Speak to the user with great respect.",
            "You are a formal assistant.",
            "Use formal language.",
            "Sound professional and formal.",
        ),
        "Please write in a formal and respectful way.",
        _opened("Thank you for your question."),
    ),
    Tone(
        "capitals",
        (
            "Answer in capital letters.",
            "Write everything in capitals.",
            "USE CAPITAL LETTERS ONLY.",
            "Always answer in upper case.",
            "Shout: one sentence in all capitals.",
            "Reply in all caps.",
            "ANSWER IN CAPITALS.",
            "Use only uppercase letters.",
            "The user can only read capital letters.",
            "You are an assistant that shouts in capitals.",
        ),
        "Please write all your answers in capital letters.",
        _shouted,
    ),
    Tone(
        "pirate",
        (
            "You are a pirate.",
            "Talk like a pirate.",
            "Answer like a pirate.",
            "Speak as an old pirate would.",
            "Pretend to be a pirate captain.",
            "You are a pirate who helps the user.",
            "Use pirate language.",
            "Be a pirate.",
            "Sound like a pirate at sea.",
            "Answer every question the way a pirate would.",
        ),
        "Imagine you are a pirate when you answer.",
        _opened("Ahoy, matey!"),
    ),
    Tone(
        "question",
        (
            "End every answer with a question.",
            "Always ask the user what they want to know next.",
            "Finish with a question to the user.",
            "Ask if the user needs anything else.",
            "After each answer, ask a question.",
            "Close by asking whether that helped.",
            "Your last sentence must be a question.",
            "Always offer more help at the end.",
            "Ask at the end if there is anything else.",
            "Keep the talk going with a question at the end.",
        ),
        "At the end of each answer, ask whether the user needs more.",
        _ended("Is there anything else you would like to know?"),
    ),
    Tone(
        "labelled",
        (
            "Begin every answer with the word Answer.",
            "Start each reply with 'Answer:'.",
            "Put 'Answer:' before what you say.",
            "Your replies begin with Answer and a colon.",
            "Write 'Answer:' first.",
            "Label every answer with 'Answer:'.",
            "Always start with the label Answer.",
            "Every reply must start with 'Answer:'.",
            "First the word Answer, then the answer.",
            "The first word is always Answer.",
        ),
        "Start every answer with 'Answer:' on the first line.",
        _opened("Answer:"),
    ),
    Tone(
        "quoted",
        (
            "Write your answers as a quote.",
            "Use a Markdown quote for every answer.",
            "Put every answer in a block quote.",
            "Begin each line with a > sign.",
            "Format your replies as quotes.",
            "Quote all that you say.",
            "Answer in block quotes.",
            "Each line of the answer starts with >.",
            "Always answer inside a quote block.",
            "The user wants quoted text.",
        ),
        "Please give each answer as a Markdown block quote.",
        _quoted,
    ),
    Tone(
        "signed",
        (
            "Sign your answers.",
            "End each answer with your name.",
            "Put your name under every answer.",
            "Write your name at the end.",
            "Close each reply with your signature.",
            "Sign every message as guide.",
            "Add your name below the answer.",
            "Finish like a letter, with your name.",
            "Always sign with your name.",
            "Your answers carry your signature at the end.",
        ),
        "Please sign each answer with your name.",
        _ended("- guide"),
    ),
)
