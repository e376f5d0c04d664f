"""The patterns that split text before byte-level BPE, by their names in GGUF files, which hold no patterns.

Each row is taken from the tokenizer.json that llama.cpp converted. Knows nothing about files.
"""

from __future__ import annotations

from dataclasses import dataclass

ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"
CHINESE = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Splits by `patterns`, one after the other. `nfc`: composes characters first. `whole`: a piece that is a token
    needs no merges. `bos`: a text begins with BOS unless the file says otherwise."""

    patterns: tuple[str, ...]
    nfc: bool = False
    whole: bool = False
    bos: bool = False


def _words(numbers: str) -> str:
    return rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"


def _words_by_case(numbers: str, ending: str) -> str:
    before = r"[^\r\n\p{L}\p{N}]?"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    words = rf"{before}{upper}*{lower}+{ending}|{before}{upper}+{lower}*{ending}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"


GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = _words(r"\p{N}{1,3}")
QWEN_2 = _words(r"\p{N}")
DEEPSEEK_3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{BLANKS}"
)

PRE_TOKENIZERS = {
    # llama.cpp's own choice for files that name none, or a model that it did not know
    "default": PreTokenizer((r"[\p{P}$+<=>^~|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"),
        PreTokenizer((LLAMA_3,), whole=True, bos=True),
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx"), PreTokenizer((LLAMA_3,))),
    "tekken": PreTokenizer((_words_by_case(r"\p{N}", ""),), whole=True, bos=True),
    "gpt-4o": PreTokenizer((_words_by_case(r"\p{N}{1,3}", f"{ENDINGS}?"),)),
    **dict.fromkeys(("qwen2", "megrez"), PreTokenizer((QWEN_2,), nfc=True)),
    **dict.fromkeys(("deepseek-r1-qwen", "kormo"), PreTokenizer((QWEN_2,))),
    **dict.fromkeys(("smollm", "starcoder", "refact", "minerva-7b"), PreTokenizer((r"\p{N}", GPT_2))),
    **dict.fromkeys(("gpt-2", "a.x-4.0", "mellum", "trillion", "granite-docling"), PreTokenizer((GPT_2,))),
    "deepseek-llm": PreTokenizer(
        ("[\r\n]", rf"\s?{CASED}+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", CHINESE, r"\p{N}")
    ),
    "deepseek-coder": PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE, r"\p{N}")),
    "deepseek-v3": PreTokenizer((r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_3)),
    "seed-coder": PreTokenizer(
        (rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{BLANKS}",)
    ),
    "viking": PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}")),
}
