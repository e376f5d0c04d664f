"""Pages of a search of the hub, each row with an estimate of its fit, and what is not for localspec marked as such.

Asks once a page and reads no headers. Knows nothing about one repository more than its row says.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

from localspec.core.main_memory import available_bytes
from localspec.core.sanitize import one_line
from localspec.engine.drafters.table import kind_name
from localspec.hub.client import Client, RepoInfo
from localspec.hub.licences import read_licence
from localspec.hub.records import SearchPage, SearchRequest, SearchRow
from localspec.hub.repository import check_name
from localspec.loading.fit import rough_fit, usable_gpu_bytes
from localspec.models.catalog import Catalog
from localspec.models.catalog_file import DraftTable
from localspec.models.safetensors_index import DTYPE_BITS

EXPANDED = ("safetensors", "gguf", "gated", "cardData", "downloads", "tags", "config", "library_name")
SORTS = {"trending": "trendingScore", "downloads": "downloads", "likes": "likes", "created": "createdAt"}
HEADS = ("eagle", "medusa", "speculator")  # in names: heads that vLLM and llama.cpp attach to a target
HEAD, GGUF, PICKLE, ADAPTER, MLX = "head for vLLM", "GGUF", "pickle only", "adapter", "MLX"
SIZE = re.compile(r"\d+(\.\d+)?[bm](?![a-z])", re.IGNORECASE)  # "7B" in a name
CONVERTED = re.compile(r"[-_.]gguf$", re.IGNORECASE)
MOST_ROWS = 100
LONGEST_NAME = 200
DRAFTER_SHARE = 5  # a drafter has at most a fifth of the target's parameters


def search(client: Client, request: SearchRequest) -> SearchPage:
    """A page of what the hub finds; with `drafter_for`, of that target's family what is small enough."""
    target = client.info(check_name(request.drafter_for)) if request.drafter_for else None
    most = target.parameters // DRAFTER_SHARE if target else 0
    page = client.search(request.cursor or query(request, most))
    catalog, free, gpu_bytes = Catalog.load(), available_bytes(), usable_gpu_bytes()
    small = [one for one in page.rows[:MOST_ROWS] if not most or one.parameters <= most]
    return SearchPage(tuple(row(one, catalog, rough(one, free, gpu_bytes)) for one in small), page.cursor)


def query(request: SearchRequest, most_parameters: int) -> str:
    """The search as the hub's API has it; its bound is in whole billions of parameters, so a little too wide."""
    words = request.words or (family(request.drafter_for) if request.drafter_for else "")
    fields = {
        **({"search": words} if words else {}),
        **({"filter": "gguf"} if request.gguf else {"pipeline_tag": "text-generation"}),
        **({} if request.gated is None else {"gated": str(request.gated).lower()}),
        **({"num_parameters": f"max:{-(-most_parameters // 10**9)}B"} if most_parameters else {}),
        "sort": SORTS[request.sort],
        "limit": str(min(request.limit, MOST_ROWS)),
        "expand": EXPANDED,
    }
    return urlencode(fields, doseq=True)


def family(repo: str) -> str:
    """The words by which the models of a target's family are found: the beginning of its name, up to its size, and
    without the word that its weights are converted."""
    name = CONVERTED.sub("", repo.rpartition("/")[2])
    size = SIZE.search(name)
    return name[: size.start()].strip("-_.: ") if size and size.start() else name


def row(found: RepoInfo, catalog: Catalog, fit: str) -> SearchRow:
    repo = one_line(found.id)[:LONGEST_NAME]
    known = catalog.of_repository(repo)
    draft = known[1].draft if known else None
    return SearchRow(
        repo=repo,
        num_bytes=num_bytes(found),
        fit=fit,
        licence=read_licence(found.card_data, found.tags or ()),
        gated=found.gated if isinstance(found.gated, str) else "",
        downloads=found.downloads or 0,
        parameters=found.parameters,
        dtype=one_line(found.dtype)[:20],
        pair=pair(draft) if draft else "",
        note=note(found),
    )


def pair(draft: DraftTable) -> str:
    """The catalogue's drafter as a row names it; "" where the user wants none."""
    return "" if draft.kind == "off" else draft.model or kind_name(draft.kind)


def rough(found: RepoInfo, free: int, gpu_bytes: int | None) -> str:
    """The estimate of a row's fit; "" where the number of parameters is not known."""
    return rough_fit(found.parameters, free=free, gpu_bytes=gpu_bytes) if found.parameters > 0 else ""


def num_bytes(found: RepoInfo) -> int:
    """The size of its weights by their number and dtypes; 0 where these are not known."""
    counts = found.safetensors.parameters if found.safetensors else {}
    if any(dtype not in DTYPE_BITS for dtype in counts):
        return 0
    return sum(max(count, 0) * DTYPE_BITS[dtype] for dtype, count in counts.items()) // 8


def note(found: RepoInfo) -> str:
    """Why a repository is not a model for localspec as it is; "" if it may be."""
    name, tags = found.id.lower(), found.tags or ()
    if any(word in name for word in HEADS):
        return HEAD
    if found.library == "peft" or "adapter" in tags or "peft" in tags:
        return ADAPTER
    if found.library == "mlx" or "mlx" in tags:
        return MLX
    if "gguf" in tags and not found.safetensors:
        return GGUF
    return "" if found.safetensors or "safetensors" in tags else PICKLE
