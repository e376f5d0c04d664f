"""A model repository as the hub shows it: files and what the hub derives from them. Knows no server, no account."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import file_digest, sha1
from io import BytesIO
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Literal

Content = bytes | Path  # a Path is served from the disk, not copied
Gated = Literal[False, "auto", "manual"]
Json = dict[str, Any]  # what json.dumps takes
LFS_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pth", ".onnx")
LFS_FROM = 10_000_000  # bytes from which git itself would refuse a file
PIECE = 1 << 16
EPOCH = "2026-01-01T00:00:00.000Z"


def open_content(content: Content) -> BinaryIO:
    return content.open("rb") if isinstance(content, Path) else BytesIO(content)


def size_of(content: Content) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


@dataclass(frozen=True)
class FakeFile:
    """One file of one commit. Git names small ones; of an LFS file git has a pointer, and its bytes lie on the CDN."""

    path: str
    content: Content
    is_lfs: bool
    xet: str = ""  # the hash by which Xet's storage knows it; "" for what is not there

    @cached_property
    def size(self) -> int:
        return size_of(self.content)

    @cached_property
    def sha256(self) -> str:
        with open_content(self.content) as file:
            return file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]

    @cached_property
    def pointer(self) -> bytes:
        return b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize %d\n" % (
            self.sha256.encode(),
            self.size,
        )

    @cached_property
    def oid(self) -> str:
        """The git blob's name: the pointer's, of an LFS file."""
        with open_content(self.pointer if self.is_lfs else self.content) as file:
            blob = file.read()
        return sha1(b"blob %d\0" % len(blob) + blob).hexdigest()

    @property
    def sibling(self) -> Json:
        """What model_info has of it with ?blobs=true."""
        lfs = {"size": self.size, "sha256": self.sha256, "pointerSize": len(self.pointer)} if self.is_lfs else None
        return {"rfilename": self.path, "size": self.size, "blobId": self.oid} | ({"lfs": lfs} if lfs else {})

    @property
    def entry(self) -> Json:
        """What a tree has of it."""
        entry: Json = {"type": "file", "oid": self.oid, "size": self.size, "path": self.path}
        if self.is_lfs:
            entry["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": len(self.pointer)}
        return entry | ({"xetHash": self.xet} if self.xet else {})

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Its bytes from `start` up to `stop`."""
        with open_content(self.content) as file:
            file.seek(start)
            while start < stop and (piece := file.read(min(PIECE, stop - start))):
                start += len(piece)
                yield piece


@dataclass(frozen=True, eq=False)
class FakeRepository:
    """One commit of a model repository. Paths, name and licence may be hostile: they are served as they are."""

    name: str  # owner/model
    files: Mapping[str, Content]
    gated: Gated = False
    licence: str = "apache-2.0"
    licence_name: str = ""
    licence_link: str = ""
    private: bool = False
    disabled: bool = False
    downloads: int = 0
    likes: int = 0
    last_modified: str = EPOCH
    pipeline_tag: str = "text-generation"
    library: str = "transformers"
    tags: tuple[str, ...] = ()
    gguf: Json | None = None  # what the hub read in its GGUF files: architecture, total, context_length
    lfs: frozenset[str] | None = None  # the paths that are LFS files; None: by suffix and size
    card: Json = field(default_factory=dict)  # further lines of the model card's front matter
    xet: Mapping[str, str] = field(default_factory=dict)  # the hashes of LFS files that Xet's storage has, by path

    @classmethod
    def from_folder(cls, name: str, folder: Path, **facts: Any) -> FakeRepository:
        """Offers all files below a folder, weights among them unread."""
        files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
        return cls(name, files, **facts)

    @property
    def owner(self) -> str:
        return self.name.partition("/")[0]

    @cached_property
    def tree(self) -> dict[str, FakeFile]:
        return {
            path: FakeFile(path, content, self._is_lfs(path, content), self.xet.get(path, ""))
            for path, content in sorted(self.files.items())
        }

    @cached_property
    def commit(self) -> str:
        """40 hex digits that change with the content."""
        lines = [self.name, *(f"{file.oid} {path}" for path, file in self.tree.items())]
        return sha1("\n".join(lines).encode()).hexdigest()

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Counts by dtype, from the headers of its safetensors files; empty without any, or with broken ones."""
        counts: Counter[str] = Counter()
        for path, file in self.tree.items():
            if path.endswith(".safetensors") and "/" not in path:
                counts.update(dtypes(file))
        return dict(counts)

    @cached_property
    def config(self) -> Json:
        """What the hub copies out of config.json."""
        file = self.tree.get("config.json")
        read = parsed(b"".join(file.pieces(0, file.size))) if file else {}
        return {key: read[key] for key in ("architectures", "model_type", "quantization_config") if key in read}

    @property
    def card_data(self) -> Json:
        named = {"license_name": self.licence_name, "license_link": self.licence_link}
        return {"license": self.licence} | {key: value for key, value in named.items() if value} | self.card

    @property
    def all_tags(self) -> list[str]:
        formats = [kind for kind in ("safetensors", "gguf") if any(path.endswith(f".{kind}") for path in self.files)]
        return [self.library, *formats, self.pipeline_tag, *self.tags, f"license:{self.licence}"]

    def facts(self, *, blobs: bool = False) -> Json:
        """All that model_info can have, under the names of `expand`."""
        parameters = {"parameters": self.parameters, "total": sum(self.parameters.values())}
        facts = {
            "author": self.owner,
            "sha": self.commit,
            "private": self.private,
            "disabled": self.disabled,
            "gated": self.gated,
            "tags": self.all_tags,
            "cardData": self.card_data,
            "config": self.config,
            "safetensors": parameters if self.parameters else None,
            "gguf": self.gguf,
            "pipeline_tag": self.pipeline_tag,
            "library_name": self.library,
            "siblings": [file.sibling if blobs else {"rfilename": path} for path, file in self.tree.items()],
            "downloads": self.downloads,
            "likes": self.likes,
            "trendingScore": self.likes,
            "lastModified": self.last_modified,
            "createdAt": EPOCH,
            "usedStorage": sum(file.size for file in self.tree.values()),
        }
        return {name: fact for name, fact in facts.items() if fact is not None}

    def listing(self, below: str, *, recursive: bool) -> list[Json]:
        """The tree's entries, folders first met first."""
        entries: dict[str, Json] = {}
        for path, file in self.tree.items():
            for folder in accumulate(path.split("/")[:-1], "{}/{}".format):
                entries.setdefault(folder, {"type": "directory", "oid": digest(folder), "size": 0, "path": folder})
            entries[path] = file.entry
        prefix = f"{below}/" if below else ""
        inside = {path: entry for path, entry in entries.items() if path.startswith(prefix)}
        return [entry for path, entry in inside.items() if recursive or "/" not in path.removeprefix(prefix)]

    def _is_lfs(self, path: str, content: Content) -> bool:
        if self.lfs is not None:
            return path in self.lfs
        return path.endswith(LFS_SUFFIXES) or size_of(content) >= LFS_FROM


def digest(text: str) -> str:
    return sha1(text.encode()).hexdigest()


def parsed(source: bytes) -> Json:
    """The JSON object, or an empty one: the hub shows what it could read."""
    try:
        read = json.loads(source)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


def dtypes(file: FakeFile) -> Counter[str]:
    """How many parameters of which dtype a safetensors header names."""
    length = int.from_bytes(b"".join(file.pieces(0, 8)), "little")
    header = parsed(b"".join(file.pieces(8, min(8 + length, file.size))))
    counts: Counter[str] = Counter()
    for name, tensor in header.items():
        if name != "__metadata__" and isinstance(tensor, dict) and {"dtype", "shape"} <= tensor.keys():
            counts[tensor["dtype"]] += prod(tensor["shape"])
    return counts
