"""Which files are fetched, and which repositories are refused before a byte of them is."""

from __future__ import annotations

import json

import pytest

from localspec.core.errors import CheckpointError, PullError, UsageError
from localspec.hub.records import RemoteFile
from localspec.hub.selection import check_paths, is_gguf, pick, select, variants

INDEX = "model.safetensors.index.json"
SMALL = ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "LICENSE.txt")


def files(*paths: str, size: int = 10) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(path, size) for path in paths)


def names(found: tuple[RemoteFile, ...]) -> set[str]:
    return {file.path for file in found}


def index(**places: str) -> bytes:
    return json.dumps({"weight_map": places}).encode()


def test_the_single_file_goes_before_an_index_and_nothing_else_is_taken():
    """What the loader would look for, and no copies in other formats."""
    others = ("pytorch_model.bin", "original/model.safetensors", "onnx/m.onnx", "flax_model.msgpack", INDEX, "m.gguf")
    found = select("o/m", files(*SMALL, "model.safetensors", "chat_template.jinja", *others))
    assert names(found) == {*SMALL, "model.safetensors", "chat_template.jinja"}


def test_shards_are_those_that_the_index_names():
    """And not every file that looks like one."""
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    listed = files(*SMALL, INDEX, *shards, "model-fp8.safetensors")
    found = select("o/m", listed, lambda _: index(a=shards[0], b=shards[1], c=shards[0]))
    assert names(found) == {*SMALL, INDEX, *shards}
    assert names(select("o/m", listed)) == {*SMALL, INDEX, *shards}  # behind a gate, by their names


def test_a_lone_file_of_another_name_is_taken():
    assert "weights.safetensors" in names(select("o/m", files(*SMALL, "weights.safetensors")))
    with pytest.raises(CheckpointError, match="2 safetensors files and no"):
        select("o/m", files(*SMALL, "a.safetensors", "b.safetensors"))


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/a.safetensors", "sub/a.safetensors", "a\\b.safetensors", "a.bin", 7]
)
def test_an_index_that_names_a_stranger_is_refused(name: object):
    """Check 10: its names become paths."""
    content = json.dumps({"weight_map": {"w": name}}).encode()
    with pytest.raises(CheckpointError, match="not a file of this folder"):
        select("o/m", files(*SMALL, INDEX), lambda _: content)


def test_an_index_that_names_what_is_not_there_is_refused():
    with pytest.raises(CheckpointError, match="which the repository does not have"):
        select("o/m", files(*SMALL, INDEX), lambda _: index(w="model-00001-of-00001.safetensors"))


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "./x",
        "a\\..\\x",
        "C:/x",
        "a\nb",
        "a\x1b[2Jb",
        "a\x00b",
        "a\u202eb",
        "",
        "a/",
    ],
)
def test_a_path_that_is_no_name_inside_the_folder_refuses_the_whole(path: str):
    """Check 10 (CVE-2026-7020 was such a path): nothing is fetched of such a repository."""
    with pytest.raises(PullError, match="not a name inside its folder") as raised:
        select("o/m", files(*SMALL, "model.safetensors", path))
    assert not any(ord(sign) < 32 or sign == "\u202e" for sign in f"{raised.value}")


def test_a_path_twice_or_of_an_impossible_size_is_refused():
    with pytest.raises(PullError):
        check_paths("o/m", files("a", "a"))
    for size in (-1, 1 << 60):
        with pytest.raises(PullError, match="impossible size"):
            check_paths("o/m", files("a", size=size))


GGUF = (
    "Model-Q4_K_M.gguf",
    "Model-Q8_0.gguf",
    "Model-IQ4_XS.gguf",
    "mmproj-Model-F16.gguf",
    "Model-UD-Q2_K_XL.gguf",
    "big/Model-F16-00001-of-00002.gguf",
    "big/Model-F16-00002-of-00002.gguf",
    "README.md",
)


def sized(*paths: str) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(path, size) for size, path in enumerate(paths, start=1))


def test_a_gguf_repository_is_a_list_of_quantisations():
    """Smallest first, split ones with all their parts, and no projectors."""
    found = variants(sized(*GGUF))
    assert list(found) == ["Q4_K_M", "Q8_0", "IQ4_XS", "UD-Q2_K_XL", "F16"]
    assert names(found["F16"].parts) == {GGUF[5], GGUF[6]}
    assert is_gguf(sized(*GGUF))
    assert not is_gguf(sized(*GGUF, "model.safetensors"))


@pytest.mark.parametrize("asked", ["Q4_K_M", "q4_k_m", "Model-Q4_K_M.gguf", "model-q4_k_m"])
def test_one_is_picked_by_quantisation_or_file(asked: str):
    assert names(pick("o/m", sized(*GGUF), asked)) == {"README.md", "Model-Q4_K_M.gguf"}


def test_what_a_quantiser_measured_is_no_model():
    """But a model may be named after it."""
    listed = sized("Model.imatrix.gguf", "imatrix_unsloth.gguf", "Model-imatrix-Q4_K_M.gguf")
    assert list(variants(listed)) == ["Q4_K_M"]


def test_two_of_one_quantisation_are_picked_by_file():
    listed = sized("A-Q8_0.gguf", "B-Q8_0.gguf")
    assert list(variants(listed)) == ["A-Q8_0.gguf", "B-Q8_0.gguf"]
    assert names(pick("o/m", listed, "B-Q8_0")) == {"B-Q8_0.gguf"}
    with pytest.raises(UsageError, match="more than one file for 'Q8_0'") as raised:
        pick("o/m", listed, "Q8_0")
    assert "A-Q8_0.gguf, B-Q8_0.gguf" in raised.value.hint


def test_an_unknown_quantisation_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="no file for 'Q4_K_S'") as raised:
        pick("o/m", sized(*GGUF), "Q4_K_S")
    assert "Q4_K_M" in raised.value.hint


def test_a_split_model_without_all_its_parts_is_refused():
    with pytest.raises(CheckpointError, match="1 of the 2 parts"):
        pick("o/m", sized(GGUF[5]), "F16")
