"""Which files of a repository are fetched: the weights that the loader would look for, and the small files beside them.

Refuses, before any byte of weights, what cannot be loaded or must not be written. Knows nothing about the network.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from localspec.core.errors import CheckpointError, PullError, UsageError
from localspec.core.sanitize import clean, one_line
from localspec.core.strict_json import parse_object
from localspec.hub.records import RemoteFile
from localspec.models.gguf.header import SPLIT
from localspec.models.gguf.quants import quant_of
from localspec.models.safetensors_index import INDEX, PICKLES, SHARD, SINGLE, shard_names

NEEDED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
BESIDE = (*NEEDED, "chat_template.jinja", "special_tokens_map.json")
PAPERS = ("LICENSE*", "LICENCE*", "USE_POLICY*", "README.md")
GGUF, PROJECTOR, IMPORTANCES = ".gguf", "mmproj", "imatrix"
ELSE = "Choose another copy of the model."
MAX_FILES = 50_000
MAX_FILE_BYTES = 1 << 44

Read = Callable[[str], bytes]  # a small file of the repository, by its path


def check_paths(repo: str, files: Sequence[RemoteFile]) -> None:
    """PullError for a path that could lead outside of the repository's folder or drive a terminal, or a size that no
    file has."""
    if len(files) > MAX_FILES:
        raise PullError(f"{repo} has {len(files):,} files.", hint=ELSE)
    seen = set[str]()
    for file in files:
        parts = file.path.split("/")
        hostile = "\\" in file.path or clean(file.path) != file.path or "\n" in file.path or ":" in parts[0]
        if hostile or any(part in ("", ".", "..") for part in parts) or file.path in seen:
            message = f"{repo} has a file '{one_line(file.path)[:120]}', which is not a name inside its folder."
            raise PullError(message, hint=f"Nothing of it was fetched. {ELSE}")
        if not 0 <= file.size <= MAX_FILE_BYTES:
            raise PullError(f"{repo}/{one_line(file.path)[:120]} has an impossible size.", hint=ELSE)
        seen.add(file.path)


def is_gguf(files: Sequence[RemoteFile]) -> bool:
    """Whether a repository's weights are GGUF files: it has some, and no safetensors at its top."""
    top = [file.path for file in files if "/" not in file.path]
    return bool(models_in(files)) and not any(fnmatch(path, "*.safetensors") for path in top)


def select(repo: str, files: Sequence[RemoteFile], read: Read | None = None) -> tuple[RemoteFile, ...]:
    """The files of a safetensors repository to fetch. Its index is read with `read`; without one (a gate) all shards
    are taken for named."""
    check_paths(repo, files)
    top = {file.path: file for file in files if "/" not in file.path}
    weights = weight_names(repo, top, read)
    if "config.json" not in top:
        raise CheckpointError(f"{repo} has no config.json: it is not a model that localspec loads.", hint=ELSE)
    if "tokenizer.json" not in top:
        raise CheckpointError(f"{repo} has no tokenizer.json.", hint="Choose a copy of the model that has one.")
    papers = [path for path in top if is_paper(path)]
    names = dict.fromkeys((*(name for name in BESIDE if name in top), *papers, *weights))
    return tuple(top[name] for name in names)


def is_paper(path: str) -> bool:
    """Whether a file is a licence or the model's card."""
    return any(fnmatch(path, pattern) for pattern in PAPERS)


def weight_names(repo: str, top: dict[str, RemoteFile], read: Read | None) -> list[str]:
    """The files that the loader would read weights from, by its own order."""
    if SINGLE in top:
        return [SINGLE]
    if INDEX in top:
        return [INDEX, *shards(repo, top, read)]
    loose = sorted(path for path in top if path.endswith(".safetensors"))
    if len(loose) == 1:
        return loose
    if loose:
        raise CheckpointError(f"{repo} has {len(loose)} safetensors files and no {INDEX}.", hint=ELSE)
    if pickle := next((path for path in sorted(top) for pattern in PICKLES if fnmatch(path, pattern)), None):
        message = f"{repo} has only pickle weights ({one_line(pickle)[:80]}), which localspec does not load."
        raise CheckpointError(message, hint="Choose a copy of the model in safetensors.")
    raise CheckpointError(f"{repo} has no weights that localspec loads.", hint=ELSE)


def shards(repo: str, top: dict[str, RemoteFile], read: Read | None) -> list[str]:
    """The shards that the index names; CheckpointError for a stranger among them."""
    if read is None:
        return sorted(path for path in top if SHARD.fullmatch(path))
    where = f"{repo}/{INDEX}"
    names = shard_names(Path(where), parse_object(read(INDEX), where))
    if absent := next((name for name in names if name not in top), None):
        raise CheckpointError(f"{where} names {absent}, which the repository does not have.", hint=ELSE)
    return names


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in a GGUF repository. `file`: its path without the numbers of parts; `quant`: as its name ends, or ""."""

    file: str
    quant: str
    parts: tuple[RemoteFile, ...]

    @property
    def words(self) -> set[str]:
        """What it may be called: its path, its name with and without the ending, its quantisation."""
        path = PurePosixPath(self.file)
        return {word.lower() for word in (self.file, path.name, path.stem, self.quant) if word}

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.parts)


def models_in(files: Sequence[RemoteFile]) -> list[Variant]:
    """The models of a GGUF repository, each with all its parts, smallest first."""
    models: dict[str, list[RemoteFile]] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if path.suffix.lower() == GGUF and not is_beside(path):
            part = SPLIT.fullmatch(path.name)
            models.setdefault(str(path.with_name(f"{part[1]}{GGUF}")) if part else file.path, []).append(file)
    found = []
    for name, parts in models.items():
        in_order = tuple(sorted(parts, key=lambda file: file.path))
        found.append(Variant(name, quant_of(name), in_order))
    return sorted(found, key=lambda one: one.num_bytes)


def is_beside(path: PurePosixPath) -> bool:
    """Whether a GGUF file is no model, by its name: a projector, or what a quantiser measured. A model may be named
    after that, too, and then has its quantisation at the end."""
    name = path.name.lower()
    return PROJECTOR in name or (IMPORTANCES in name and not quant_of(path.name))


def variants(files: Sequence[RemoteFile]) -> dict[str, Variant]:
    """The models of a GGUF repository by what picks one: its quantisation where no other has that, else its file."""
    found = models_in(files)
    quants = [one.quant for one in found]
    return {one.quant if one.quant and quants.count(one.quant) == 1 else one.file: one for one in found}


def pick(repo: str, files: Sequence[RemoteFile], asked: str) -> tuple[RemoteFile, ...]:
    """The files of the variant that is asked for; the papers go with it. UsageError with the nearest names where there
    is none, or more than one."""
    known = variants(files)
    matching = [label for label, one in known.items() if asked.lower() in one.words]
    if len(matching) != 1:
        near = matching or difflib.get_close_matches(asked.upper(), known, n=3, cutoff=0.3) or list(known)
        if not near:
            raise UsageError(f"{repo} has no GGUF files to choose from.", hint=f"Use {repo} alone.")
        what = "more than one file" if matching else "no file"
        shown = ", ".join(one_line(label) for label in near[:6])
        raise UsageError(f"{repo} has {what} for '{one_line(asked)[:80]}'.", hint=f"Use {repo}:NAME, e.g. {shown}.")
    papers = [file for file in files if "/" not in file.path and is_paper(file.path)]
    return (*papers, *checked_parts(repo, known[matching[0]].parts))


def checked_parts(repo: str, parts: Sequence[RemoteFile]) -> tuple[RemoteFile, ...]:
    """The parts of one model; CheckpointError where some are missing."""
    named = SPLIT.fullmatch(PurePosixPath(parts[0].path).name)
    if named and int(named[3]) != len(parts):
        message = f"{repo} has {len(parts)} of the {int(named[3]):,} parts of {one_line(named[1])[:80]}."
        raise CheckpointError(message, hint=ELSE)
    return tuple(parts)


def weights_of(files: Sequence[RemoteFile]) -> tuple[RemoteFile, ...]:
    """The files that hold weights."""
    return tuple(file for file in files if file.path.lower().endswith((".safetensors", GGUF)))
