"""Other programs' names for commands, and our command that does the same."""

from __future__ import annotations

import click

from localspec.core.errors import UPDATE
from localspec.core.sanitize import one_line

LISTS, PULLS, DELETES = "localspec ls", "localspec pull MODEL", "localspec rm MODEL"
CHATS, ANSWERS = "localspec chat", 'localspec run MODEL "your question"'
SHOWS, SETTINGS, CHECKS = "localspec show MODEL", "localspec config", "localspec doctor"
ALL_SETTINGS = "localspec config show"
SYNONYMS = {
    **dict.fromkeys(("list", "models", "list-models", "library", "tags"), LISTS),
    **dict.fromkeys(("download", "get", "fetch", "install", "add"), PULLS),
    **dict.fromkeys(("remove", "delete", "rmi", "uninstall"), DELETES),
    **dict.fromkeys(("start", "load", "open", "tui", "resume"), CHATS),
    **dict.fromkeys(("ask", "prompt", "generate", "complete", "exec"), ANSWERS),
    **dict.fromkeys(("info", "inspect"), SHOWS),
    **dict.fromkeys(("settings", "set"), SETTINGS),
    **dict.fromkeys(("config get", "config list", "config ls"), ALL_SETTINGS),
    **dict.fromkeys(("status", "check"), CHECKS),
    "benchmark": "localspec bench MODEL",
    "server": "localspec serve",
    "version": "localspec --version",
    "help": "localspec --help",
}
ELSEWHERE = {
    "compare": "There is no command 'compare'. In the chat: F6; for a model: localspec bench guide",
    "search": "Models are searched in the chat: localspec chat, Ctrl+O, Hub. Saved chats: localspec history search",
    "create": f"There is nothing to create: a folder or GGUF file runs as it is. Try: {CHATS} ./FILE.gguf",
    "login": "Log in with the hub's own program: hf auth login",
    **dict.fromkeys(("update", "upgrade"), UPDATE),
}


def ours(fault: click.UsageError) -> str:
    """A sentence for a command of another program, with ours; "" for every other fault."""
    if not isinstance(fault, click.NoSuchCommand):
        return ""
    groups = fault.ctx.command_path.split()[1:] if fault.ctx else []
    typed = " ".join((*groups, fault.command_name))
    name = typed.lower()
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    return f"There is no command '{one_line(typed)}'. Try: {SYNONYMS[name]}" if name in SYNONYMS else ""
