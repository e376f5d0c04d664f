"""What the benchmark and the proof ask: questions in eight kinds, two of each, with the text they ask about; and the
questions that the built-in guide was made for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["chat", "story", "code", "edit", "summary", "extraction", "JSON", "translation", "guide"]
KINDS: tuple[Kind, ...] = ("chat", "story", "code", "edit", "summary", "extraction", "JSON", "translation")
GUIDE: Final = "guide"  # the model that knows of nothing but localspec


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """`kind` is the row that it counts in."""

    kind: Kind
    text: str


MAIL = """Dear Ms Okafor, thank you for the quick delivery. Two of the twelve chairs arrived with a cracked leg, and the
invoice 20817 lists fourteen. Could you collect the damaged ones before Friday and send a corrected invoice? Our new
loading dock is at 9 Mill Lane, open from 7 to 15 o'clock. Kind regards, Tomasz Brandt, Brandt & Daughters"""

LETTER = """we was very happy with the boat trip on saturday, the guide know everything about the birds and he tell it
with much humour. only the lunch was to small and it come late. next time we would of liked more time on the island,
because the children has found a cave and they wasnt finished with exploring it when the horn have called."""

FUNCTION = """def read_table(path):
    f = open(path)
    rows = []
    for line in f.readlines():
        parts = line.split(",")
        if len(parts) > 1:
            row = {}
            row["name"] = parts[0].strip()
            row["amount"] = float(parts[1].strip())
            rows.append(row)
    return rows"""

REPORT = """The village took its water from a single spring until the summer of the drought, when it gave out for the
first time in memory. For nine weeks a lorry brought ten thousand litres a day. The council then asked an engineer to
look for a second source. She found three: a disused mine, whose water contained iron; a stream, which ran dry in
August; and a layer of gravel beneath the football field, deep enough to be clean. The well in the gravel was drilled
within a month, and cost less than the lorry had. Since then the spring serves the upper houses and the well the lower
ones, with a pipe between the two that is opened only when one of them fails."""

MINUTES = """Present: Ada, Ben, Chidi. The oven will be repaired on 3 March; Ben lets the firm in. Flour has become 12
per cent dearer, so the large loaf will cost 4.20 from April on. Chidi has found a second driver, Mila, who begins on
Monday with the northern round. The stall at the spring fair costs 150 and needs three people: Ada asks the students.
The old mixer is sold for 900 to the school in Brook Street, which fetches it itself."""

ORDER = """Hello, this is Lena Fuchs, customer 4471. I would like three boxes of the blue tiles, 20 by 20, and one box
of the white ones, 10 by 10. Please deliver to 12 Harbour Street, Emden, on Thursday if you can. My number is
0170 555 019."""

PROMPTS: tuple[BenchPrompt, ...] = (
    BenchPrompt("chat", "What should I pack for a weekend of walking in the hills in October?"),
    BenchPrompt(
        "chat", "My tomato plants have yellow leaves at the bottom. What could be the reason, and what can I do?"
    ),
    BenchPrompt("story", "Write a short story about a lighthouse keeper who finds a letter in a bottle."),
    BenchPrompt("story", "Tell me a bedtime story about a small robot that is afraid of the dark."),
    BenchPrompt(
        "code", "Write a Python function that returns the longest word of a sentence, and show how it is used."
    ),
    BenchPrompt("code", f"Add type hints and a docstring to this function, and close the file:\n\n{FUNCTION}"),
    BenchPrompt("edit", f"Correct the mistakes in this text and change nothing else:\n\n{LETTER}"),
    BenchPrompt("edit", f"Rename the function to load_amounts and f to file. Print the whole code:\n\n{FUNCTION}"),
    BenchPrompt("summary", f"Summarise this text in two sentences:\n\n{REPORT}"),
    BenchPrompt("summary", f"Summarise these minutes as a list of decisions:\n\n{MINUTES}"),
    BenchPrompt("extraction", f"List every name, number and date in this mail, one a line:\n\n{MAIL}"),
    BenchPrompt("extraction", f"Who does what until when? Quote the words of the minutes:\n\n{MINUTES}"),
    BenchPrompt("JSON", f"Write this order as JSON with customer, name, address, day and items:\n\n{ORDER}"),
    BenchPrompt(
        "JSON", f"Write this mail as JSON with sender, recipient, complaint, invoice, address and hours:\n\n{MAIL}"
    ),
    BenchPrompt("translation", f"Translate into French:\n\n{ORDER}"),
    BenchPrompt("translation", f"Translate into Spanish:\n\n{REPORT}"),
)

QUESTIONS = (
    "What is speculative decoding?",
    "What does the acceptance rate mean?",
    "How do I stop an answer while it streams?",
    "What is early exit and why is it fast?",
    "How is the speed-up measured?",
    "Does drafting change the text I get?",
    "Show me how to use localspec from Python.",
    "What is the difference between a drafter and a target?",
)


def prompts_for(key: str) -> tuple[BenchPrompt, ...]:
    """One prompt of every kind; for the built-in guide its own questions."""
    return tuple(BenchPrompt(GUIDE, text) for text in QUESTIONS) if key == GUIDE else PROMPTS[::2]
