"""Gates as states: which of them a repository is in for this account, and what to do next, in lines for a screen.

Knows the hub's codes and texts, and nothing about how they were asked for or are shown.
"""

from __future__ import annotations

from localspec.core.sanitize import one_line
from localspec.hub.records import Access, Gate, Meanwhile

GATED = "GatedRepo"  # X-Error-Code
AWAITS = "awaiting a review"  # in the hub's text about a request without an answer
TOKENS = "https://huggingface.co/settings/tokens"


def closed_gate(status: int, code: str, message: str, *, logged_in: bool) -> Gate:
    """The state of a gate that is closed, by the hub's answer to "may I?"."""
    if code != GATED:
        return "scope" if status == 403 and logged_in else "logged-out"
    if status == 401 or not logged_in:
        return "logged-out"
    return "awaiting" if AWAITS in message.lower() else "no-request"


def gate_lines(
    repo: str, access: Access, meanwhile: Meanwhile | None = None, *, waits: bool = False
) -> tuple[str, ...]:
    """What a person should know at a closed gate: the state, what to do next, and what to run meanwhile. Empty where it
    is open. `waits`: this command waits for it, so nothing else has to be typed later."""
    if access.may_read:
        return ()
    name, page = one_line(repo), one_line(access.page)
    lines = [state_sentence(access), next_step(name, page, access, waits=waits)]
    if access.hides_login:
        lines.append("HF_TOKEN overrides the saved login. To use that one: unset HF_TOKEN")
    if meanwhile is not None and meanwhile.is_here:
        command = f"localspec chat {one_line(meanwhile.target)} ({meanwhile.word})"
        lines.append(f"Meanwhile, on this machine: {command}")
    elif meanwhile is not None:
        command = f"localspec pull {one_line(meanwhile.target)}"
        command += f" --draft {one_line(meanwhile.drafter)}" if meanwhile.drafter else ""
        lines.append(f"Meanwhile, without a gate: {command} ({meanwhile.word})")
    else:
        lines.append("Meanwhile, without a download: localspec chat (guide, the built-in model)")
    return tuple(lines) if waits else (*lines, "Nothing was downloaded.")


def state_sentence(access: Access) -> str:
    account = one_line(access.account) or "an account without a name"
    match access.gate:
        case "logged-out":
            return "Not logged in: only people with access can download this model."
        case "no-request":
            return f"No request yet: logged in as {account}, who has no access to this model."
        case "awaiting":
            return f"Awaiting review: {account} has asked, and its authors have not answered yet."
        case "scope":
            return "This token may not read gated repositories."
    return "Access is granted."


def next_step(repo: str, page: str, access: Access, *, waits: bool = False) -> str:
    review = " Its authors review each request." if access.by_hand else ""
    later = "" if waits else f" Then wait for it: localspec pull {repo} --wait"
    match access.gate:
        case "logged-out":
            return f"Log in: hf auth login. Then run this again. Ask for access on {page}.{review}"
        case "no-request":
            return f"Ask for access on {page}.{review}{later}"
        case "awaiting":
            return f"Its page: {page}." + ("" if waits else f" Go on when they have: localspec pull {repo} --wait")
        case "scope":
            return f"Allow gated repositories in the token's settings: {TOKENS}. Or log in again: hf auth login"
    return ""
