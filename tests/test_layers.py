"""Imports go down only: who may know what, as CONTRIBUTING.md draws it, read from the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

CLONE = Path(__file__).parents[1]
ROOT = CLONE / "localspec"
WORKSHOPS = ("benchmarks", "training")  # beside the package, outside the wheel; the first knows the second

# Rooms of one row do not know each other.
ROWS = [
    "core",
    "models",
    "config history engine",
    "loading",
    "runtime",
    "hub remote",
    "serve tui bench",
    "cli",
    "__init__ __main__",
]
ROW = {name: row for row, names in enumerate(ROWS) for name in names.split()}

HEAVY = {"torch", "transformers", "textual", "numpy", "numba", "safetensors", "tokenizers", "jinja2", "huggingface_hub"}
HEAVY |= {"starlette", "uvicorn"}
NETWORK = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "socketserver", "xmlrpc", "huggingface_hub"}
NETWORK |= {"requests", "httpx", "aiohttp", "websockets", "urllib3"}
ROOMS_OF_TENSORS = ("engine", "loading", "runtime.drafter_setup", "runtime.open", "bench", "cli.doctor")
AT_HOME = (  # what measures the screen, and the weights themselves; not for a bare box
    "benchmarks.chat",
    "benchmarks.held",
    "benchmarks.levels",
    "benchmarks.pieces",
    "benchmarks.quality",
    "benchmarks.timed_chat",
    "benchmarks.ui.busy_hub",
    "benchmarks.ui.chat_program",
)
ENGINE_BOX = {"torch", "transformers", "safetensors", "msgspec"}  # what a GPU box has


@dataclass(frozen=True)
class Import:
    """`module` is dotted; `late` is inside a function, `typing` under TYPE_CHECKING."""

    module: str
    name: str | None
    late: bool
    typing: bool
    line: int


def dotted(file: Path) -> str:
    parts = file.relative_to(CLONE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {dotted(file): file for file in sorted(ROOT.rglob("*.py"))}
WORKSHOP_FILES = {dotted(file): file for name in WORKSHOPS for file in sorted((CLONE / name).rglob("*.py"))}
EVERY_FILE = FILES | WORKSHOP_FILES


def walk(node: ast.AST, *, late: bool = False, typing: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        guarded = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, None, late, typing, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}"
            yield from (Import(str(child.module), alias.name, late, typing, child.lineno) for alias in child.names)
        if not isinstance(child, ast.expr):  # no import is in one
            yield from walk(child, late=inside, typing=guarded)


@cache
def source(module: str) -> ast.Module:
    return ast.parse(EVERY_FILE[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> tuple[Import, ...]:
    return tuple(walk(source(module)))


def ours(found: Import) -> str | None:
    """Which of our modules an import means."""
    if found.module.partition(".")[0] not in ("localspec", *WORKSHOPS):
        return None
    whole = f"{found.module}.{found.name}"
    if whole in EVERY_FILE:
        return whole
    return found.module


def room(module: str) -> str:
    """localspec.engine.drafters.model is in engine; localspec itself in __init__; a workshop is one of its own."""
    parts = module.split(".")
    if parts[0] in WORKSHOPS:
        return parts[0]
    return parts[1] if len(parts) > 1 else "__init__"


def where(module: str, found: Import) -> str:
    return f"{EVERY_FILE[module].relative_to(CLONE)}:{found.line}"


def test_every_module_is_in_a_room():
    assert {room(module) for module in FILES} - set(ROW) == set()
    assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_house_has_at_most_fourteen_boxes_on_nine_floors():
    """The package itself and what starts it are one box."""
    assert len(ROW.keys() - {"__main__"}) <= 14
    assert len(ROWS) <= 9


def test_imports_go_down_only():
    """From room to room; the package itself, and what starts it, know whom they name."""
    wrong = [
        f"{where(module, found)}: {room(module)} imports {target}"
        for module in FILES
        for found in imports(module)
        if (target := ours(found)) and room(target) != room(module) and ROW.get(room(target), 99) >= ROW[room(module)]
    ]
    assert wrong == []


def test_the_package_imports_no_workshop_and_no_tests():
    """They lie beside it in a clone, and are not installed."""
    named = {found.module.partition(".")[0] for module in FILES for found in imports(module)}
    assert named & {*WORKSHOPS, "tests", "docs", "pytest", "_pytest", "hypothesis"} == set()


def test_the_benchmarks_import_the_recipe_and_not_the_other_way_round():
    training = [module for module in WORKSHOP_FILES if room(module) == "training"]
    assert len(training) > 10
    assert [
        module for module in training if any(found.module.startswith("benchmarks") for found in imports(module))
    ] == []


def test_the_table_in_contributing_is_these_rows():
    page = (ROOT.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = [re.findall(r"`(\w+)/`", line) for line in re.findall(r"^\| `.*", page, re.MULTILINE)]
    there = [[name for name in names.split() if (ROOT / name).is_dir()] for names in reversed(ROWS)]
    assert table == [names for names in there if names]


def test_no_imports_run_in_a_circle():
    """Those inside functions count; those for type checkers do not run."""
    graph = {
        module: {target for found in imports(module) if not found.typing and (target := ours(found))}
        for module in EVERY_FILE
        if module != "localspec"
    }
    TopologicalSorter({module: targets - {module} for module, targets in graph.items()}).prepare()


def third_party(module: str) -> dict[str, Import]:
    return {found.module.partition(".")[0]: found for found in imports(module) if not ours(found)}


def uses(*packages: str) -> set[str]:
    return {module for module in FILES if set(packages) & set(third_party(module))}


def within(modules: set[str], *rooms: str) -> set[str]:
    """Those that are outside the rooms."""
    names = tuple(f"localspec.{name}" for name in rooms)
    return {module for module in modules if not module.startswith(names)}


def test_torch_is_in_the_engine_and_around_it_only():
    assert within(uses("torch"), *ROOMS_OF_TENSORS) == set()


def test_transformers_and_its_like_are_only_where_they_must_be():
    allowed = (
        "loading",
        "engine.rope",
        "engine.four_bit",
        "engine.generic",
        "bench.transformers_peer",
        "cli.doctor.probe",
    )
    assert within(uses("transformers", "bitsandbytes", "optimum", "accelerate"), *allowed) == set()


def test_textual_is_in_the_screen_only():
    assert within(uses("textual"), "tui") == set()
    assert within(uses("rich"), "tui") == set()
    assert uses("textual") != set()


def test_click_is_in_the_command_line_only():
    assert within(uses("click"), "cli") == set()


def test_the_engine_knows_no_text_and_no_network():
    forbidden = {"textual", "tokenizers", "jinja2", "click", "json", "msgspec", "platformdirs", "psutil", "pathlib"}
    engine = [module for module in FILES if room(module) == "engine"]
    keeps_code = {"localspec.engine.cpu.program", "localspec.engine.cpu.build"}  # in files, for the next start
    allowed = {module: forbidden - ({"pathlib"} if module in keeps_code else set()) for module in engine}
    assert [module for module in engine if allowed[module] & set(third_party(module))] == []
    assert len(engine) > 10


def test_nobody_asks_the_network():
    assert within(uses(*NETWORK), "hub", "remote", "serve") == set()
    assert within(uses("starlette", "uvicorn", "h11"), "serve") == set()


def test_nobody_opens_a_database():
    assert within(uses("sqlite3"), "history") == set()


def test_nobody_runs_what_a_stranger_wrote():
    dangerous = uses("pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib")
    assert dangerous == set()
    for module in FILES:
        calls = [node for node in ast.walk(source(module)) if isinstance(node, ast.Call)]
        names = {ast.unparse(call.func) for call in calls if "weights_only=True" not in map(ast.unparse, call.keywords)}
        names -= {"exec"} if module == "localspec.engine.cpu.lang" else set()  # a signature, spelled there for numba
        assert names.isdisjoint({"eval", "exec", "torch.load", "__import__", "os.system"}), module


@cache
def closure(module: str) -> frozenset[str]:
    """Our modules that importing this one imports: packages above them too, but not the package of all."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        here = waiting.pop()
        if here in seen or here not in EVERY_FILE:
            continue
        seen.add(here)
        parts = here.split(".")
        waiting += [".".join(parts[:end]) for end in range(2, len(parts))]
        waiting += [str(ours(found)) for found in imports(here) if not (found.late or found.typing) and ours(found)]
    return frozenset(seen - {"localspec"})


def needs(module: str) -> set[str]:
    """Packages, not of Python's own, that importing it takes."""
    found = {
        found.module.partition(".")[0]
        for one in closure(module)
        for found in imports(one)
        if not (found.late or found.typing or ours(found))
    }
    return found - set(sys.stdlib_module_names) - {"localspec", *WORKSHOPS}


@pytest.mark.parametrize("module", [module for module in FILES if room(module) == "engine"])
def test_the_engine_needs_torch_alone_and_on_a_cpu_numba(module: str):
    """Beside them msgspec, in which core's records are."""
    compiler = {"numba", "llvmlite", "numpy", "platformdirs"} if module.startswith("localspec.engine.cpu.") else set()
    theirs = {"generic": {"transformers"}, "batch": {"greenlet"}}  # who imports those wants them
    assert needs(module) <= {"torch", "msgspec"} | compiler | theirs.get(module.rpartition(".")[2], set())


def test_the_loader_imports_on_a_bare_gpu_box():
    assert needs("localspec.loading.torch") <= ENGINE_BOX | {"psutil"}
    assert needs("localspec.loading.kernels") <= ENGINE_BOX | {"psutil"}


BARE = [module for module in EVERY_FILE if room(module) in ("bench", "benchmarks") and not module.startswith(AT_HOME)]


@pytest.mark.parametrize("module", BARE)
def test_the_benchmarks_import_on_a_bare_gpu_box(module: str):
    """Their prompts go through tokenizers and jinja2, which transformers' own requirements bring."""
    assert needs(module) <= ENGINE_BOX | {"psutil", "tokenizers", "jinja2", "platformdirs"}


def test_the_screen_needs_neither_torch_nor_transformers():
    for module in FILES:
        if room(module) == "tui":
            everything = {
                name for one in closure(module) for name in third_party(one) if not third_party(one)[name].late
            }
            assert everything.isdisjoint({"torch", "transformers", "safetensors", "numpy"}), module


def modules_after(program: str) -> set[str]:
    """Top-level packages in sys.modules when a fresh Python has run this."""
    code = f"import sys\n{program}\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    return set(done.stderr.split())


HELP = """
import runpy
sys.argv = ["localspec", *{arguments!r}]
try:
    runpy.run_module("localspec", run_name="__main__", alter_sys=True)
except SystemExit as leave:
    assert not leave.code, leave.code
"""


def test_importing_localspec_imports_nothing_heavy():
    loaded = modules_after("import localspec; assert localspec.__version__; dir(localspec)")
    assert loaded & (HEAVY | {"click", "asyncio"}) == set()


def test_the_hub_seen_from_the_parent_imports_neither_its_library_nor_torch():
    """What the commands and the screen use of it (check 25)."""
    seen = "process records gates licences"
    loaded = modules_after("; ".join(f"import localspec.hub.{name}" for name in seen.split()))
    assert loaded & {"huggingface_hub", "httpx", "httpx2", "torch", "numba", "transformers", "textual"} == set()


def test_the_chat_imports_no_server():
    """Nor do the commands that look for one (check 25)."""
    loaded = modules_after("import localspec.tui.app, localspec.serve.registry, localspec.cli.servers_text")
    assert loaded & {"starlette", "uvicorn", "h11", "torch"} == set()


def test_the_server_itself_runs_no_model():
    """The engine is in its child; the parent must not hold torch beside it."""
    loaded = modules_after("import localspec.serve.server, localspec.cli.server")
    assert loaded & {"torch", "numba", "transformers", "textual"} == set()


def test_the_hubs_process_plans_without_torch():
    loaded = modules_after("import localspec.hub.plan, localspec.hub.remote_pair")
    assert loaded & {"torch", "numba", "transformers", "textual"} == set()


HELPS = ["--help", "--version", "chat --help", "run -h", "bench -h", "doctor -h"]
HELPS += ["ls -h", "fit -h", "pair -h", "pull -h"]
HELPS += ["history -h", "history ls -h", "config -h", "serve -h", "ps -h", "stop -h"]


@pytest.mark.parametrize("arguments", [words.split() for words in HELPS], ids=HELPS)
def test_help_imports_nothing_heavy(arguments: list[str]):
    assert modules_after(HELP.format(arguments=arguments)) & {*HEAVY, "sqlite3"} == set()


@pytest.mark.parametrize("arguments", [["history", "ls"], ["history", "stats"], ["history", "path"]])
def test_the_history_is_read_without_a_model_or_a_screen(arguments: list[str]):
    assert modules_after(HELP.format(arguments=arguments)) & HEAVY == set()


@pytest.mark.parametrize("name", ["load", "EarlyExit", "DraftModel", "Message", "SpecOptions"])
def test_what_the_package_promises_is_there(name: str):
    import localspec

    assert name in localspec.__all__
    assert name in dir(localspec)
    assert getattr(localspec, name).__module__.startswith("localspec.")


def test_what_it_does_not_promise_is_a_plain_attribute_error():
    import localspec

    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = localspec.lode
