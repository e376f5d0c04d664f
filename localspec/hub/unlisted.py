"""The versions on this machine that no list of models has: those that were pulled as ORG/NAME@REV.

Knows no network and not the hub's library, and does not say which of them are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from localspec.core.events import Record
from localspec.core.sanitize import one_line
from localspec.core.sizes import size_words
from localspec.history.text.lists import count
from localspec.hub import manifests, pulls
from localspec.hub.older import commits_of, has_weights, only_used_by, referenced, snapshot
from localspec.models import hub_cache


class Unlisted(Record, frozen=True):
    """Versions of a repository, and the bytes that only they use."""

    repo: str
    commits: tuple[str, ...]
    num_bytes: int


def unlisted(listed: Collection[tuple[str, str]]) -> tuple[Unlisted, ...]:
    """The versions of all repositories that have any. `listed`: repositories and commits of the models in the list."""
    found = ((repo, unlisted_commits(repo, listed)) for repo in hub_cache.folders())
    return tuple(Unlisted(repo, of, sum(only_used_by(repo, of).values())) for repo, of in found if of)


def unlisted_words(found: Sequence[Unlisted]) -> str:
    """What versions take that the list does not have, and what deletes them; "" for none."""
    if not found:
        return ""
    number, total = sum(len(one.commits) for one in found), size_words(sum(one.num_bytes for one in found))
    names = ", ".join(one_line(one.repo) for one in found)
    pulled = f"{count(number, 'version')} pulled as ORG/NAME@REV"
    take = f"{'is' if number == 1 else 'are'} not listed and {'takes' if number == 1 else 'take'} {total}"
    command = f"localspec rm {one_line(found[0].repo) if len(found) == 1 else 'ORG/NAME'}"
    return f"{pulled}, of {names}, {take}. Delete all versions of a repository: {command}"


def unlisted_commits(repo: str, listed: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The commits with weights that a branch or tag beside main names, or that nothing is known of but their hash: what
    only an earlier pull of a branch explains is an older version. None while a pull is not complete."""
    if pulls.known(repo):
        return ()
    main, named = hub_cache.commit_of(repo), referenced(repo)
    others = (one for one in commits_of(repo) if one != main and (repo, one) not in listed)
    kept = (one for one in others if one in named or not manifests.is_of_a_branch(repo, one))
    return tuple(one for one in kept if has_weights(snapshot(repo, one)))
