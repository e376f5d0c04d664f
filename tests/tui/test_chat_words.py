"""What the engine says for the shell is said in the chat as it can be typed there."""

from __future__ import annotations

import pytest

from localspec.remote.faults import refused
from localspec.tui.chat.chat_words import chat_words


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Exact but slower: --quant fp32.", "Exact but slower: /quant fp32."),
        ("Watch the acceptance, or --draft off.", "Watch the acceptance, or /draft off."),
        ("Use --draft auto, off, early-exit:E, or a folder.", "Use /draft auto, off, early-exit:E, or a folder."),
        ("use long drafts, --k 16.", "use long drafts, /k 16."),
        ("Try: localspec chat x --quant int8", "Try: /quant int8"),
        ("Use --k auto, heuristic, or 0 to 16.", "Use /k auto, heuristic, or 0 to 16."),
        ("Try --temperature 0.8.", "Try /set temperature=0.8."),
        ("Try --repetition-penalty 1.1.", "Try /set repetition_penalty=1.1."),
        ("Fetch it: localspec pull ORG/NAME", "^O, Hub, finds and downloads it."),
        ("no flag here -- none, and a-b--c neither", "no flag here -- none, and a-b--c neither"),
        ("Chat without saving (localspec chat --no-history).", "Chat without saving (localspec chat --no-history)."),
    ],
)
def test_a_flag_is_the_command_that_does_the_same(said: str, shown: str):
    assert chat_words(said, "^O") == shown
    assert chat_words(shown, "^O") == shown


def test_what_only_a_start_takes_is_said_to_be_for_a_start():
    shown = chat_words("Try --quant int4, --device offload or a smaller --ctx.", "^O")
    assert shown == (
        "Try /quant int4, --device offload or a smaller --ctx."
        " (--device and --ctx are set at the start: localspec chat --help)"
    )
    assert chat_words("Use a smaller --ctx.", "^O").endswith("(--ctx is set at the start: localspec chat --help)")


def test_a_flag_in_a_servers_own_words_is_not_said_to_be_of_this_start():
    body = b'{"error": {"message": "This host name is not served. Start the server with: --allow-host NAME"}}'
    fault = refused("http://box:8000", 403, body)
    said = f"{fault.message} {fault.hint}"
    assert "Start the server with: --allow-host NAME." in said
    assert chat_words(said, "^O") == said


def test_a_drafts_own_format_is_no_command_of_the_chat():
    assert "/draft-quant" not in chat_words("Give --draft-quant int8.", "^O")
