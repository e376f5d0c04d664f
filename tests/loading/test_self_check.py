"""Admission: every family passes, a fault is refused in one sentence, and the verdict is remembered.

The torch decoder against transformers, then the CPU engine against the torch decoder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from localspec.core import paths
from localspec.core.errors import CheckpointError, EngineError
from localspec.engine import rope
from localspec.engine.arch import Arch, read_arch
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.isa import choose
from localspec.engine.cpu.model import PackedLayer, PackedModel
from localspec.engine.cpu.program import Program, load
from localspec.engine.decoder import Decoder
from localspec.loading.self_check import config as config_check
from localspec.loading.self_check import cpu
from tests.loading.test_families import BASE, FAMILIES, config_of

pytestmark = pytest.mark.heavy

REAL: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "initializer_range": 0.02,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0",
        "use_cache": True,
        "vocab_size": 128256,
    },
    "Llama-3.2-3B": {  # three queries a key, and a head_dim of its own
        "model_type": "llama",
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "num_attention_heads": 24,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
        "vocab_size": 128256,
    },
    "Qwen2.5-0.5B": {
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 21,
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Qwen3-8B": {
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "max_window_layers": 36,
        "num_attention_heads": 32,
        "num_hidden_layers": 36,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "Mistral-7B-v0.1": {
        "model_type": "mistral",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "SmolLM2-135M": {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "vocab_size": 49152,
    },
    "Llama-2-7b": {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
}
ALL = {**{name: config_of(name) for name in FAMILIES}, **REAL}


@pytest.mark.parametrize("name", ALL)
def test_every_family_passes_the_self_check(name: str):
    config_check.verify_config(ALL[name])
    (verdict,) = json.loads(paths.self_checks_file().read_text()).values()
    assert verdict <= config_check.TOLERANCE


@pytest.mark.parametrize("name", ALL)
def test_the_configuration_is_left_as_it_was(name: str):
    """transformers writes into the dicts it is given; a decoder loaded after the self-check must not see that."""
    config = deepcopy(ALL[name])
    config_check.verify_config(config)
    assert config == ALL[name]


@pytest.mark.parametrize("name", [name for name in ALL if "window" in name and "not" not in name])
def test_the_small_model_feels_its_window(name: str):
    """With the window wide open it computes something else: the agreement above is about windows too."""
    small = config_check.shrink(ALL[name])
    ids = torch.arange(config_check.ROWS)
    narrow = config_check.reference_logits(config_check.transformers_model(small), ids)
    wide = config_check.reference_logits(config_check.transformers_model({**small, "sliding_window": 1000}), ids)
    assert not torch.allclose(narrow, wide, rtol=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_the_stand_in_keeps_ratios_and_flags(name: str):
    config, small = ALL[name], config_check.shrink(ALL[name])
    real, made = read_arch(config), read_arch(small)
    assert made.hidden_size * real.num_heads == real.hidden_size * made.num_heads
    assert made.head_dim == real.head_dim
    assert made.query_group == min(real.query_group, 4)
    for flag in ("family", "norm_eps", "rope", "qkv_bias", "output_bias", "mlp_bias", "qk_norm", "tied_head"):
        assert getattr(made, flag) == getattr(real, flag)
    assert {bool(window) for window in made.windows} == {bool(window) for window in real.windows}


BIGGER = {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80}
SMALLER = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}


def test_8b_and_70b_share_a_verdict():
    common = {**REAL["Llama-3.2-3B"], "tie_word_embeddings": False}
    del common["head_dim"]
    one, other = {**common, **SMALLER, "eos_token_id": [5], "use_cache": False}, {**common, **BIGGER}
    assert config_check.fingerprint(one) == config_check.fingerprint(other)
    for flag in ({"rms_norm_eps": 1e-6}, {"tie_word_embeddings": True}, {"rope_theta": 1e4}, {"head_dim": 64}):
        assert config_check.fingerprint(one) != config_check.fingerprint({**other, **flag})


@pytest.mark.slow
def test_a_verdict_that_is_known_needs_no_transformers():
    """Nor does it to find out that nobody reads a field."""
    config = {**BASE, "unsloth_fixed": True}
    config_check.verify_config(config)
    asks = (
        f"import sys; from localspec.loading.self_check.config import verify_config; verify_config({config})"
        "; sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", asks], check=False, timeout=100).returncode == 0


def test_a_stand_in_that_fails_is_our_fault_and_says_why(monkeypatch: pytest.MonkeyPatch):
    real = config_check.shrink
    monkeypatch.setattr(config_check, "shrink", lambda config: {**real(config), "hidden_size": 130, "head_dim": 32})
    with pytest.raises(CheckpointError, match=r"small copy .* fails \(.*hidden size \(130\) is not a multiple") as met:
        config_check.verify_config(BASE)
    assert "This is a bug in localspec" in met.value.hint
    assert "Download" not in met.value.hint


def test_what_transformers_cannot_load_says_why_in_the_same_sentence():
    with pytest.raises(CheckpointError, match=r"cannot load this configuration \(.*hidden size \(66\) is not") as met:
        config_check.verify_config({**BASE, "hidden_size": 66, "head_dim": 16})
    assert "Download" not in met.value.hint


def refuse_to_compute(config: dict[str, Any]) -> float:
    raise AssertionError(f"the verdict was not remembered: {config}")


def test_the_verdict_is_remembered(monkeypatch: pytest.MonkeyPatch):
    config_check.verify_config(BASE)
    monkeypatch.setattr(config_check, "difference", refuse_to_compute)
    config_check.verify_config(BASE)
    config_check.verify_config(
        {**BASE, "eos_token_id": 5, "transformers_version": "4.0"}
    )  # says nothing about the arithmetic
    with pytest.raises(AssertionError, match="not remembered"):
        config_check.verify_config({**BASE, "rms_norm_eps": 1e-3})


@pytest.mark.parametrize("package", ["transformers", "torch"])
def test_another_version_is_judged_anew(package: str, monkeypatch: pytest.MonkeyPatch):
    config_check.verify_config(BASE)
    real = config_check.version
    monkeypatch.setattr(config_check, "version", lambda name: "99" if name == package else real(name))
    monkeypatch.setattr(config_check, "difference", refuse_to_compute)
    with pytest.raises(AssertionError, match="not remembered"):
        config_check.verify_config(BASE)


def wrong_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    real = config_check.read_arch

    def read(config: dict[str, Any]) -> Any:
        from dataclasses import replace

        return replace(real(config), norm_eps=1e-2)

    monkeypatch.setattr(config_check, "read_arch", read)


def rope_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rope.rotation_table

    def table(*args: Any) -> Any:
        cos, sin = real(*args)
        return cos, -sin

    monkeypatch.setattr("localspec.engine.decoder.rotation_table", table)


def rope_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rope.frequencies
    monkeypatch.setattr(rope, "frequencies", lambda *args: (real(*args)[0] * 0.99, 1.0))


def mask_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Decoder.mask
    monkeypatch.setattr(Decoder, "mask", lambda self, place, window: real(self, place, window and window + 1))


def no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Decoder.forward
    monkeypatch.setattr(Decoder, "forward", lambda *args, **kwargs: real(*args, **kwargs) * float("nan"))


@pytest.mark.parametrize("fault", [wrong_eps, rope_backwards, rope_too_slow, mask_off_by_one, no_numbers])
def test_a_decoder_with_a_fault_is_refused_in_one_sentence(fault: Any, monkeypatch: pytest.MonkeyPatch):
    config = config_of("mistral with a window")
    fault(monkeypatch)
    with pytest.raises(CheckpointError) as refused:
        config_check.verify_config(config)
    message = refused.value.message
    assert "does not agree with transformers" in message
    assert message.endswith(".")
    assert message.count(". ") == 0
    assert refused.value.hint


ROPES = [{"rope_type": "llama3"}, {"rope_type": "linear"}, {"rope_type": "longrope", "short_factor": "x"}]
ROPES += [{"rope_type": "yarn", "factor": 2.0, "beta_fast": "x"}, {"rope_type": ["x"]}, {"rope_type": "y" * 5000}]


@pytest.mark.parametrize("said", ROPES, ids=lambda said: str(said)[:40])
def test_a_rope_that_transformers_cannot_make_is_one_sentence(said: dict[str, Any]):
    config = {**BASE, "rope_scaling": said}
    for refused in (
        lambda: config_check.verify_config(config),
        lambda: rope.rotation_table(read_arch(config), 64, torch.float32),
    ):
        with pytest.raises(CheckpointError) as met:
            refused()
        assert len(met.value.message) < 300
        assert "\n" not in met.value.message
        assert met.value.hint


def test_a_field_of_another_kind_is_one_sentence():
    with pytest.raises(CheckpointError, match=r"cannot load this configuration .*'attention_bias'"):
        config_check.verify_config({**BASE, "attention_bias": "x"})


def test_a_refusal_is_remembered_too(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        rope_backwards(patch)
        with pytest.raises(CheckpointError):
            config_check.verify_config(BASE)
    monkeypatch.setattr(config_check, "difference", refuse_to_compute)
    with pytest.raises(CheckpointError, match="does not agree"):
        config_check.verify_config(BASE)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"null",
        b'"x"',
        b"\xff\xfe\x00",
        b'{"a": "b"}',
        b'{"a": null}',
        b'{"a": [1]}',
        b"[" * 99999,
    ],
    ids=lambda damage: repr(damage[:12]),
)
def test_a_damaged_file_of_verdicts_is_an_empty_one(damage: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(config_check, "difference", lambda _: 0.0)
    paths.self_checks_file().write_bytes(damage)
    config_check.verify_config(BASE)
    assert list(json.loads(paths.self_checks_file().read_text()).values()) == [0.0]


def test_admission_draws_no_random_numbers_from_others():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    config_check.difference(BASE)
    assert torch.equal(torch.rand(3), expected)


# --- the CPU engine

KINDS = ("int8", "int4")
WINDOWED = config_of("mistral with a window")
NORMED = config_of("qwen3")


@pytest.fixture(scope="module")
def engine() -> Program:
    return load(choose())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_every_family_passes_the_self_check_to_the_engine(name: str, kind: Any, engine: Program):
    cpu.verify_packed(ALL[name], kind, engine)
    (verdict,) = json.loads(paths.self_checks_file().read_text()).values()
    assert verdict <= cpu.TOLERANCE / 10


def other_arch(monkeypatch: pytest.MonkeyPatch, change: Callable[[Arch], Arch]) -> None:
    """The engine runs another architecture than the one that it was packed for."""
    real = PackedModel.__init__

    def init(self: PackedModel, arch: Arch, *args: Any, **kwargs: Any) -> None:
        real(self, change(arch), *args, **kwargs)

    monkeypatch.setattr(PackedModel, "__init__", init)


def other_weights(monkeypatch: pytest.MonkeyPatch, change: Callable[[PackedLayer], PackedLayer]) -> None:
    real = PackedModel._describe_layer
    monkeypatch.setattr(PackedModel, "_describe_layer", lambda self, index, layer: real(self, index, change(layer)))


def other_turns(monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    real = rope.rotation_table
    monkeypatch.setattr("localspec.engine.cpu.model.rotation_table", lambda *args: change(*real(*args)))


def slower(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All frequencies 1 % lower: the angles of 0.99 times the position."""
    half = sin.shape[-1] // 2
    step = 0.99 * torch.atan2(sin[1, 0, half:], cos[1, 0, half:])
    angles = torch.arange(cos.shape[0])[:, None, None] * torch.cat((step, step))
    signs = torch.ones(2 * half)
    signs[:half] = -1
    return angles.cos(), angles.sin() * signs


def wider(arch: Arch) -> Arch:
    return replace(arch, windows=tuple(window and window + 1 for window in arch.windows))


PACKED_FAULTS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "epsilon ten times": (BASE, other_arch, lambda arch: replace(arch, norm_eps=arch.norm_eps * 10)),
    "epsilon a tenth": (BASE, other_arch, lambda arch: replace(arch, norm_eps=arch.norm_eps / 10)),
    "epsilon a fifth more": (BASE, other_arch, lambda arch: replace(arch, norm_eps=arch.norm_eps * 1.2)),
    "epsilon of queries and keys": (NORMED, other_arch, lambda arch: replace(arch, norm_eps=arch.norm_eps * 10)),
    "turned backwards": (BASE, other_turns, lambda cos, sin: (cos, -sin)),
    "turned one place too far": (BASE, other_turns, lambda cos, sin: (cos, sin.roll(1, 0))),
    "turned 1 % too slowly": (BASE, other_turns, slower),
    "a window one too wide": (WINDOWED, other_arch, wider),
    "no window": (WINDOWED, other_arch, lambda arch: replace(arch, windows=(None,) * arch.num_layers)),
    "query norm for keys": (
        NORMED, other_weights, lambda layer: replace(layer, q_norm=layer.k_norm, k_norm=layer.q_norm)
    ),
    "no query norm": (NORMED, other_weights, lambda layer: replace(layer, q_norm=None)),
    "no key norm": (NORMED, other_weights, lambda layer: replace(layer, k_norm=None)),
    "norms swapped": (
        BASE, other_weights, lambda layer: replace(layer, attention_norm=layer.mlp_norm, mlp_norm=layer.attention_norm)
    ),
    "no bias": (
        config_of("qwen2"), other_weights, lambda layer: replace(layer, qk=replace(layer.qk, bias=None))
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PACKED_FAULTS)
def test_an_engine_with_a_fault_is_refused_in_one_sentence(
    name: str, kind: Any, engine: Program, monkeypatch: pytest.MonkeyPatch
):
    config, how, change = PACKED_FAULTS[name]
    with monkeypatch.context() as patch:
        how(patch, change)
        with pytest.raises(EngineError, match=r"^The CPU engine does not agree with torch .*\. Use --quant bf16\.$"):
            cpu.verify_packed(config, kind, engine)
    with pytest.raises(EngineError, match="does not agree"):  # a refusal is remembered
        cpu.verify_packed(config, kind, engine)


def test_the_engines_verdict_is_remembered_by_format_and_code(engine: Program, monkeypatch: pytest.MonkeyPatch):
    cpu.verify_packed(BASE, "int8", engine)
    monkeypatch.setattr(cpu, "difference", refuse_to_compute)
    cpu.verify_packed(BASE, "int8", engine)
    with pytest.raises(TypeError):
        cpu.verify_packed(BASE, "int4", engine)
    monkeypatch.setattr("localspec.engine.cpu.program.fingerprint", lambda _: "another")
    with pytest.raises(TypeError):
        cpu.verify_packed(BASE, "int8", engine)


@pytest.mark.parametrize("width", [2, 7, 16])
def test_rows_that_depend_on_their_number_are_refused_at_every_load(
    width: int, engine: Program, monkeypatch: pytest.MonkeyPatch
):
    """One bit of one logit, when so many rows are computed at once."""
    real = PackedDecoder.forward

    def forward(self: PackedDecoder, ids: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        logits = real(self, ids, *args, **kwargs)
        if ids.shape[0] == width:
            logits[-1, 5] *= 1 + 2**-23
        return logits

    cpu.verify_packed(BASE, "int8", engine)
    monkeypatch.setattr(PackedDecoder, "forward", forward)
    with pytest.raises(EngineError, match=f"{width} rows differ.*Use --quant bf16"):
        cpu.verify_packed(BASE, "int8", engine)
