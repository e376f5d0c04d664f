"""A snapshot on disk is read as it is: names, tensors, templates and every token that ends a turn."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.core.errors import CheckpointError, NotDownloaded
from localspec.models.checkpoint import Snapshot, open_snapshot
from tests.support.tokenizers import CHATML, CONFIG, entry, gpt2_like, llama2_like, safetensors_bytes, write_snapshot


def rewrite(folder: Path, name: str, **changes: object) -> Snapshot:
    """Open the folder after changing one of its JSON files."""
    file = folder / name
    before = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**before, **changes}))
    return open_snapshot(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_snapshot(
        tmp_path / "tiny", tokenizer=gpt2_like(), template=CHATML, specials={"eos_token": "<|im_end|>"}
    )


def test_a_snapshot_says_what_it_holds(folder: Path) -> None:
    snapshot = open_snapshot(folder)
    assert snapshot.name == "tiny"
    assert snapshot.config == CONFIG
    assert snapshot.total_bytes == 80
    assert snapshot.vocab_size == 16
    assert snapshot.chat_template == CHATML
    assert snapshot.tokenizer_file == folder / "tokenizer.json"
    assert snapshot.special_tokens == {"eos_token": "<|im_end|>"}


def test_tensors_are_where_the_header_says(folder: Path) -> None:
    data = bytes(range(80))
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("BF16", [8], 64, 80),
        "a": entry("F32", [4, 4], 0, 64),
        "none": entry("F32", [0, 4], 64, 64),
    }
    (folder / "model.safetensors").write_bytes(safetensors_bytes(header, data))
    info = open_snapshot(folder).tensors["b"]
    assert (info.dtype, info.shape, info.num_bytes) == ("BF16", (8,), 16)
    assert info.file.read_bytes()[info.begin : info.end] == data[64:]


def test_shards_are_joined(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for name, file in names.items():
        (folder / file).write_bytes(safetensors_bytes({name: entry("F32", [4, 4], 0, 64)}, bytes(64)))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    snapshot = open_snapshot(folder)
    assert {name: info.file.name for name, info in snapshot.tensors.items()} == names


def test_a_snapshot_of_the_shared_cache_is_read_through_its_links(folder: Path, tmp_path: Path) -> None:
    cached = tmp_path / "models--maker--a--model" / "snapshots" / "abc"
    cached.mkdir(parents=True)
    for file in folder.iterdir():
        (cached / file.name).symlink_to(file)
    snapshot = open_snapshot(cached)
    assert snapshot.name == "maker/a--model"
    assert snapshot.total_bytes == 80


def test_which_weights_they_are_is_the_commit_of_a_cached_snapshot_else_how_the_files_are(
    folder: Path, tmp_path: Path
) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    cached = tmp_path / "models--maker--model" / "snapshots" / commit
    cached.parent.mkdir(parents=True)
    shutil.copytree(folder, cached)
    (tmp_path / "link").symlink_to(cached)
    assert open_snapshot(cached).revision == open_snapshot(tmp_path / "link").revision == commit
    before = open_snapshot(folder).revision
    assert re.fullmatch("files [0-9a-f]{12}", before)
    assert open_snapshot(folder).revision == before
    os.utime(folder / "model.safetensors", (1, 1))
    assert open_snapshot(folder).revision != before


def test_every_token_that_ends_a_turn_is_known(folder: Path) -> None:
    rewrite(folder, "config.json", eos_token_id=3)
    snapshot = rewrite(folder, "generation_config.json", eos_token_id=[3, 5])
    assert snapshot.eos_ids == (3, 5, 402)


def test_the_end_token_may_be_listed_in_the_tokenizers_configuration(folder: Path) -> None:
    listed = {"7": {"content": "<|im_end|>"}}
    assert rewrite(folder, "tokenizer_config.json", added_tokens_decoder=listed).eos_ids == (7,)


def test_the_end_token_may_be_a_word_of_the_vocabulary(tmp_path: Path) -> None:
    spec = json.loads(llama2_like().to_str())
    spec["added_tokens"] = []
    folder = write_snapshot(tmp_path / "m", specials={"eos_token": "</s>"})
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    assert open_snapshot(folder).eos_ids == (2,)


@pytest.mark.parametrize("ids", [None, True, "2", -1, [None, {}, [1], 2.0], {"a": 1}])
def test_an_end_token_that_is_no_id_is_ignored(folder: Path, ids: object) -> None:
    assert rewrite(folder, "generation_config.json", eos_token_id=ids).eos_ids == (402,)


def test_the_template_is_found_wherever_it_is_kept(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert rewrite(folder, "tokenizer_config.json", chat_template=named).chat_template == "D"
    assert rewrite(folder, "tokenizer_config.json", chat_template=[]).chat_template is None
    (folder / "chat_template.jinja").write_text("J")
    assert open_snapshot(folder).chat_template == "J"


def test_a_token_may_be_written_as_a_record(folder: Path) -> None:
    snapshot = rewrite(folder, "tokenizer_config.json", bos_token={"content": "<s>", "lstrip": False}, pad_token=None)
    assert snapshot.special_tokens == {"bos_token": "<s>", "eos_token": "<|im_end|>"}


def test_harmless_fields_of_real_models_are_let_through(folder: Path) -> None:
    rewrite(folder, "config.json", _name_or_path="/somebody/else", head_dim=None, sliding_window=None, torch_dtype="x")
    snapshot = rewrite(folder, "tokenizer_config.json", model_max_length=10**30, name_or_path="a/b", extra={})
    assert snapshot.chat_template


@pytest.mark.parametrize(
    "fields",
    [
        {"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}},
        {"_attn_implementation_autoset": True},
        {"_attn_implementation": "eager"},
        {"attn_implementation": "flash_attention_2"},
        {"trust_remote_code": False},
        {"auto_map": None, "custom_generate": ""},
    ],
    ids=min,
)
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_what_only_transformers_would_act_upon_is_harmless_in_honest_models(
    file: str, fields: dict[str, object], folder: Path
) -> None:
    """Phi-3's code of its own, what transformers 4.46 to 4.51 wrote into fine-tunes, Gemma 2's eager attention."""
    snapshot = rewrite(folder, file, **fields)
    assert snapshot.config == CONFIG  # nothing of it is there for anybody to act upon
    assert not set(snapshot.generation) & {"auto_map", "_attn_implementation"}


def test_nothing_where_a_name_could_stand_is_harmless(folder: Path) -> None:
    """As GPTQ's quantization_config has it."""
    assert rewrite(folder, "config.json", quantization_config={"model_name_or_path": None}).config[
        "quantization_config"
    ]


@pytest.mark.parametrize(
    ("value", "says"),
    [("12", "num_hidden_layers = '12' is text, not a number"), (1001, "is out of range (1 to 1,000)")],
)
def test_a_number_that_is_text_is_called_text(value: object, says: str, folder: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        rewrite(folder, "config.json", num_hidden_layers=value)
    assert says in caught.value.message


def test_a_folder_that_is_not_there_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(NotDownloaded, match="There is no folder"):
        open_snapshot(tmp_path / "nobody")


def test_pickle_weights_are_refused_by_name(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as caught:
        open_snapshot(folder)
    assert caught.value.message == (
        "Model 'tiny' has only pickle weights (pytorch_model.bin), which localspec does not load."
    )


def test_a_truncated_file_is_said_to_be_cut_short(folder: Path) -> None:
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    with pytest.raises(
        CheckpointError, match=rf"is cut short \(has {len(whole) - 30} of {len(whole)} bytes\)\. Download"
    ):
        open_snapshot(folder)


def test_inspecting_a_model_loads_no_torch() -> None:
    loaded = ", ".join(
        f"localspec.models.{name}" for name in ("checkpoint", "prompt", "pairing", "detokenize", "catalog")
    )
    check = f"import sys, {loaded}; sys.exit(bool({{'torch', 'transformers', 'textual'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False, timeout=60).returncode == 0
