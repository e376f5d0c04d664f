"""What pip installs: a wheel with everything in it, which answers in an empty environment, away from this clone."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
OFFLINE = ["--no-deps", "--no-index"]
COMMAND = "Scripts/localspec.exe" if os.name == "nt" else "bin/localspec"

LENT = sysconfig.get_path("purelib")
FOLDERS = os.path.realpath(ROOT), os.path.realpath(LENT)  # the second is in the first where the clone has its .venv
WATCH = f"""
import os, sys

def refuse(event, args):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], (str, bytes, os.PathLike)):
        path = os.path.realpath(os.fsdecode(args[0]))
        clone, lent = ((path + os.sep).startswith(folder + os.sep) for folder in {FOLDERS!r})
        if clone and not lent:
            raise RuntimeError(path + " is of the clone")

sys.addaudithook(refuse)
"""

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, check=True, timeout=200, cwd=ROOT, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, and beside it what it needs, lent by the environment of the tests: only that one's localspec is not
    seen, since a path file inside a folder that a path file names is not read. Whoever opens a file of this clone there
    fails, in every process."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=os.name != "nt")
    (site,) = folder.rglob("site-packages")
    (site / "lent.pth").write_text(LENT, encoding="utf-8")
    python = folder / Path(COMMAND).parent / Path(sys.executable).name
    subprocess.run([*PIP, "--python", str(python), "install", *OFFLINE, str(wheel)], check=True, timeout=200)
    (site / "watch.py").write_text(WATCH, encoding="utf-8")
    (site / "watch.pth").write_text("import watch", encoding="utf-8")
    return folder


def sources() -> set[str]:
    """Every file of the package and of the model in this clone."""
    files = [file for folder in ("localspec", "assets/guide") for file in (ROOT / folder).rglob("*") if file.is_file()]
    return {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}


def test_the_wheel_has_every_file_of_the_package_and_the_model(wheel: Path):
    """Screen and engine too: what is missing is missed only where there is no clone. And nothing else: no
    benchmarks, no recipe, no corpus and no exam."""
    expected = {f"localspec/data/{name}" if name.startswith("assets/") else name for name in sources()}
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert expected | {"localspec/data/models.toml"} == packed


def answer(environment: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    asked = [str(environment / COMMAND), "run", "guide", "hello", "--stats"]
    return subprocess.run(asked, check=False, cwd=folder, env=bare(), capture_output=True, text=True, timeout=280)


def bare() -> dict[str, str]:
    """The environment of a user who knows nothing of this clone."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_an_installed_wheel_answers_from_another_folder_and_reads_nothing_of_this_clone(
    environment: Path, tmp_path: Path
):
    done = answer(environment, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert '"draft_kind": "early-exit"' in done.stderr


@pytest.mark.slow
def test_pip_finds_all_it_needs_for_an_environment_with_nothing_in_it(wheel: Path, tmp_path: Path):
    """Nothing lent: every dependency comes from the package registry, none was forgotten in pyproject.toml. Skipped
    where no registry can be reached, as pip's warnings say."""
    folder = tmp_path / "empty"
    venv.create(folder, symlinks=os.name != "nt")
    python = folder / Path(COMMAND).parent / Path(sys.executable).name
    constrained = ["--constraint", str(ROOT / "constraints.txt"), str(wheel)]
    install = [*PIP, "--python", str(python), "install", *constrained]
    pip = subprocess.run(install, check=False, capture_output=True, text=True, timeout=900)
    if pip.returncode and "after connection broken by" in pip.stderr:
        pytest.skip("no package registry can be reached")
    assert pip.returncode == 0, pip.stderr
    (tmp_path / "elsewhere").mkdir()
    done = answer(folder, tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_code_the_model_and_the_catalogue_are_the_installed_ones(environment: Path, tmp_path: Path):
    found = python(environment, tmp_path, ASK).stdout.splitlines()
    assert len(found) == 3
    assert [place for place in found if not Path(place).is_relative_to(environment.resolve())] == []


@pytest.mark.parametrize("name", ["models.toml", "assets/guide/config.json", "localspec/__init__.py"])
def test_a_file_of_this_clone_would_be_refused(name: str, environment: Path, tmp_path: Path):
    """The tests above can fail."""
    done = python(environment, tmp_path, f"open({str(ROOT / name)!r})")
    assert done.returncode != 0
    assert f"{ROOT / name} is of the clone" in done.stderr


ASK = """
from localspec.core import paths
from localspec.models.catalog import Catalog
print(paths.HERE, paths.packaged("models.toml"), Catalog.load().resolve("guide").path, sep="\\n")
"""


def python(environment: Path, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    words = [str(environment / Path(COMMAND).parent / Path(sys.executable).name), "-c", code]
    return subprocess.run(words, check=False, cwd=folder, env=bare(), capture_output=True, text=True, timeout=60)
