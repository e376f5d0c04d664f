"""Where a model comes from: the program whose it is, or that it is a folder or a file of the user's."""

from __future__ import annotations

from pathlib import Path

from localspec.core import paths
from localspec.runtime.origins import origin_of


def test_a_file_is_not_called_a_folder(tmp_path: Path):
    file = tmp_path / "model.gguf"
    file.touch()
    assert origin_of(str(tmp_path), tmp_path).words == "a folder"
    assert origin_of(str(file), file).words == "a file"


def test_a_file_of_another_program_has_its_name(tmp_path: Path):
    file = tmp_path / "sha256-0"
    file.touch()
    assert origin_of("ollama:qwen3:8b", file).words == "Ollama"


def test_what_came_with_the_package_is_built_in():
    assert origin_of("guide", paths.packaged("assets") / "guide").words == "built in"
