"""What the engine says for the shell, in the chat's words: its commands for flags, its keys for other programs' lines.

Knows flags and commands, no widgets.
"""

from __future__ import annotations

import re

from localspec.core.requests import SAMPLING_FIELDS

COMMANDS = ("quant", "draft", "k", "preset")  # flags that have a command of the same name
SAMPLING = [name.replace("_", "-") for name in SAMPLING_FIELDS]  # flags that /set takes as options
START = re.compile(r"localspec (?:chat|run|bench) [^-\s]\S* (?=--)")
COMMAND = re.compile(rf"(?<![\w-])--({'|'.join(COMMANDS)})(?![\w-])")
SETTING = re.compile(rf"(?<![\w-])--({'|'.join(SAMPLING)}) (\d+(?:\.\d+)?)")
PULL = re.compile(r"\w+ (?:it|another): localspec pull \S+")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z\d-]*")
GET_IT = "{models}, Hub, finds and downloads it."


def chat_words(text: str, models: str) -> str:
    """The sentence as it can be followed in the chat; `models` is the key of the models screen. Flags that only a
    start takes are named as such."""
    text = COMMAND.sub(r"/\1", START.sub("", text))
    text = SETTING.sub(lambda found: f"/set {found[1].replace('-', '_')}={found[2]}", text)
    text = PULL.sub(GET_IT.format(models=models), text)
    flags = list(dict.fromkeys(FLAG.findall(text)))
    if not flags or "localspec " in text:
        return text
    start = f"{' and '.join(flags)} {'are' if len(flags) > 1 else 'is'} set at the start: localspec chat --help"
    return f"{text} ({start})"
