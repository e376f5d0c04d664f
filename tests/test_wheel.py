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

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*PIP, *build], check=True, timeout=200)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, and beside it what it needs, lent by the environment of the tests: only that one's localspec is not
    seen, since a path file inside a folder that a path file names is not read."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=os.name != "nt")
    (site,) = folder.rglob("site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = folder / Path(COMMAND).parent / Path(sys.executable).name
    subprocess.run([*PIP, "--python", str(python), "install", *OFFLINE, str(wheel)], check=True, timeout=200)
    return folder


def sources() -> set[str]:
    """Every file of the package and of the model in this clone."""
    files = [file for folder in ("localspec", "assets/guide") for file in (ROOT / folder).rglob("*") if file.is_file()]
    return {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}


def test_the_wheel_has_every_file_of_the_package_and_the_model(wheel: Path):
    """Corpus, exam, screen and engine too: what is missing is missed only where there is no clone."""
    expected = {f"localspec/data/{name}" if name.startswith("assets/") else name for name in sources()}
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert expected | {"localspec/data/models.toml"} == packed


def test_an_installed_wheel_answers_from_another_folder(environment: Path, tmp_path: Path):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    asked = [str(environment / COMMAND), "run", "guide", "hello", "--stats"]
    done = subprocess.run(asked, check=False, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert '"draft_kind": "early-exit"' in done.stderr


def test_it_is_the_wheel_that_answers(environment: Path, tmp_path: Path):
    """The code and the model are the installed ones, not this clone's."""
    code = "from localspec import paths; print(paths.HERE); print(paths.packaged('assets/guide'))"
    python = environment / Path(COMMAND).parent / Path(sys.executable).name
    said = subprocess.run([python, "-c", code], check=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    here, model = map(Path, said.stdout.splitlines())
    assert here.is_relative_to(environment.resolve())
    assert model == here / "data" / "assets" / "guide"
