"""The models on this machine as text: a list, one in full, what a deletion frees, and what a check found."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.cli.download.unfinished_pulls import size_of, state
from localspec.core.sanitize import clean, one_line
from localspec.core.sizes import size_words
from localspec.history.records import ModelTotals
from localspec.history.text.columns import cells, columns, hanging
from localspec.history.text.lists import count, draft_name, speed, when
from localspec.hub.integrity import FilesVerified
from localspec.hub.inventory import LocalModel, ModelDetails
from localspec.hub.older import Older
from localspec.hub.plan_words import deleted_names, named_template
from localspec.hub.pulls import Unfinished
from localspec.hub.records import DeletePlan, DraftOffer, Licence
from localspec.models.hub_cache import SHORT_COMMIT


def models_table(models: Sequence[LocalModel], width: int | None = None) -> str:
    """A row a model; two lines a model where `width` cells are too few for that, the whole name first."""
    head = ("NAME", "FORMAT", "SIZE", "FIT", "DRAFTER", "LICENCE", "LAST USED")
    rows = [model_row(one) for one in models]
    table = columns([head, *rows], right={2})
    if width is None or max(map(cells, table.splitlines())) <= width:
        return table
    return "\n".join(f"{name}\n  {' · '.join(cell for cell in rest if cell != '–')}" for name, *rest in rows)


def model_row(one: LocalModel) -> tuple[str, ...]:
    licence = one_line(one.licence.words) if one.licence.tag or one.licence.name else "–"
    used = "now" if one.loaded else when(one.last_used) if one.last_used else "–"
    size = size_words(one.num_bytes) if one.num_bytes else "–"
    return one_line(one.name), one_line(one.quant), size, one.fit, one_line(one.drafter) or "–", licence, used


def unfinished_lines(found: Sequence[Unfinished]) -> str:
    head = ("UNFINISHED", "SIZE", "STATE")
    return columns([head, *((one_line(one.name), size_of(one), state(one)) for one in found)])


def older_line(found: Sequence[Older]) -> str:
    """What only older versions use, of all models."""
    names = ", ".join(one_line(one.repo) for one in found)
    total = size_words(sum(one.num_bytes for one in found))
    return f"Older versions of {names} take {total}. Free it: localspec rm --older"


def older_words(found: Older) -> str:
    if not found.num_bytes:
        return ""
    size = size_words(found.num_bytes)
    return f"{len(found.commits)}, {size}. Free it: localspec rm --older {one_line(found.repo)}"


def licence_line(licence: Licence) -> str:
    """A licence of which no text is on this machine: its name and page."""
    return f"{licence.words} {licence.link}".rstrip() + "\n"


def details_text(found: ModelDetails, width: int | None = None) -> str:
    """A model's card, within the width of a terminal."""
    model = found.model
    commit = f" @ {model.commit[:SHORT_COMMIT]}" if model.commit else ""
    newer = "a newer version is there; models.toml fixes this one" if model.newer else ""
    rows = [
        ("repository", f"{one_line(model.repo)}{commit}" if model.repo else ""),
        ("", newer),
        ("older versions", older_words(found.older) if found.older else ""),
        ("path", one_line(model.path)),
        ("licence", one_line(model.licence.words)),
        ("weights", f"{one_line(model.quant)}, {size_words(model.num_bytes)}: {model.fit}"),
        ("architecture", architecture(found)),
        ("chat template", named_template(found.named_template, has_own=bool(found.template))),
        *listed("drafters", [f"{one_line(name)}: {one_line(about)}" for name, about in found.drafts]),
        ("early exit", early_exit_words(found.early_exit) if found.early_exit else ""),
        *listed("files", [f"{one_line(file.path)}, {size_words(file.num_bytes)}" for file in found.files]),
        *listed("answers", [answers_line(one) for one in found.answers]),
    ]
    return "\n".join([one_line(model.name), hanging([row for row in rows if row[1]], width)])


def early_exit_words(offer: DraftOffer) -> str:
    """The layer and draft length that models.toml has, and where they were read."""
    return f"after layer {offer.exit_layer}, k {offer.k}{f' ({one_line(offer.source)})' if offer.source else ''}"


def listed(name: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Rows of which the first has the name."""
    return [(name if not index else "", line) for index, line in enumerate(lines)]


def architecture(found: ModelDetails) -> str:
    layers = f", {found.layers} layers" if found.layers else ", run by transformers"
    return f"{one_line(found.architecture)}{layers}, context {found.context:,}, vocabulary {found.vocabulary:,}"


def answers_line(one: ModelTotals) -> str:
    rate, accepted, gain = speed(one)
    ways = " ".join(filter(None, (one_line(one.quant), f"with {draft_name(one.draft)}" if one.draft else "undrafted")))
    return f"{count(one.answers, 'answer')} {ways}: {rate} tokens/s, {accepted} of drafts accepted, {gain}"


def deletion_text(plan: DeletePlan, keys: Sequence[str] = (), begun: Sequence[str] = ()) -> str:
    """What a deletion frees, what stays, and the `keys` that go with it. `begun`: downloads of which no byte came."""
    names = deleted_names(plan)
    freed = f"Deleting {names} frees {size_words(plan.freed_bytes)}"
    parts = [freed if names else "Nothing of it is on this machine"]
    if plan.unfinished_bytes:
        parts.append(f"{size_words(plan.unfinished_bytes)} of it unfinished")
    if plan.older_bytes and not plan.older:
        parts.append(f"{size_words(plan.older_bytes)} of it in older versions")
    if plan.prepared_bytes:
        parts.append(f"{size_words(plan.prepared_bytes)} of it in prepared weights")
    if plan.shared_bytes:
        parts.append(f"{size_words(plan.shared_bytes)} stay, since other models share them")
    parts += [f"the unfinished download of {one_line(repo)} is dropped" for repo in begun]
    if keys:
        parts.append(f"also removes the key{'s' * (len(keys) > 1)} {', '.join(keys)} from models.toml")
    return "; ".join(parts) + "."


def counted(found: FilesVerified) -> str:
    """How many files are right, by the hashes that are known of them."""
    total = len(found.files)
    of = count(total, "file")
    if all(file.state == "unknown" for file in found.files):
        looks, them = ("look", "them") if total > 1 else ("looks", "it")
        return f"{of}, which {looks} whole; there is no published hash to compare {them} with"
    right = sum(file.state == "right" for file in found.files)
    return f"{right} of {of} {'have' if total > 1 else 'has'} the hash that is known of {'them' if total > 1 else 'it'}"


def verified_text(found: FilesVerified) -> str:
    """The result of a check: its counts, and each file that is not right."""
    lines = [f"{one_line(found.name)}: {counted(found)}."]
    rows = [(one_line(file.path), file.state, one_line(file.detail)) for file in found.files if file.state != "right"]
    return clean("\n".join([*lines, *([columns(rows)] if rows else [])]))
