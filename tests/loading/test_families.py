"""The decoder against transformers: tiny random models of every family, float32 and float64, split every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from localspec.core.errors import CheckpointError
from localspec.engine.arch import read_arch
from localspec.engine.decoder import Decoder
from localspec.engine.protocols import ExitStates
from localspec.loading.self_check.config import reference_logits, transformers_model
from localspec.loading.sources import StateDictSource, WeightReader
from localspec.loading.torch import assemble
from localspec.models import named_fields
from tests.support.models import random_tensors

pytestmark = pytest.mark.heavy

ROWS = 32
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}

BASE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
SPLIT_WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama biased and tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama llama3 rope": {"rope_scaling": LLAMA3_ROPE, "rope_theta": 500000.0},
    "llama linear rope": {"rope_scaling": {"type": "linear", "factor": 2.5}},
    "llama yarn rope": {"rope_scaling": YARN},
    "llama dynamic rope within the context": {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    "llama one query a key": {"num_key_value_heads": 4},
    "llama four queries a key": {"num_key_value_heads": 1},
    "llama wide heads": {"head_dim": 32},
    "llama narrow heads": {"head_dim": 8},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral with a window": {"model_type": "mistral", "sliding_window": 7},
    "mistral wide heads": {"model_type": "mistral", "sliding_window": None, "head_dim": 24},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen2 with windows on some layers": {"model_type": "qwen2", **SPLIT_WINDOW},
    "qwen2 yarn": {"model_type": "qwen2", "rope_scaling": YARN},
    "qwen2 window given and not used": {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 7},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "rope_theta": 1e6},
    "qwen3 biased": {"model_type": "qwen3", "head_dim": 16, "attention_bias": True},
    "qwen3 with windows on some layers": {"model_type": "qwen3", "head_dim": 16, **SPLIT_WINDOW},
    "smollm": {
        "hidden_size": 72,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
        "rope_interleaved": False,
    },
}


def config_of(name: str) -> dict[str, Any]:
    return {**BASE, **FAMILIES[name]}


def ids() -> Tensor:
    return torch.randint(BASE["vocab_size"], (ROWS,), generator=torch.Generator().manual_seed(1))


def pair(config: dict[str, Any], dtype: torch.dtype = torch.float32) -> tuple[Any, Decoder]:
    """transformers' random model, and our decoder with its weights."""
    reference = transformers_model(config).to(dtype)
    if dtype == torch.float64:
        reference.set_attn_implementation("sdpa")  # its eager attention takes the softmax in float32
    decoder = assemble(read_arch(config), StateDictSource(reference.state_dict()), dtype=dtype, context=ROWS + 8)
    return reference, decoder


def assert_agree(got: Tensor, expected: Tensor, tolerance: float) -> None:
    assert torch.equal(got.argmax(-1), expected.argmax(-1))
    assert (got - expected).abs().max() / expected.abs().max() <= tolerance


def chunks(decoder: Decoder, sizes: list[int]) -> Tensor:
    """Logits of all rows, forwarded in chunks of these sizes."""
    assert sum(sizes) == ROWS
    decoder.crop(0)
    return torch.cat([decoder.forward(part) for part in ids().split(sizes)])


SPLITS = {
    "at once": [ROWS],
    "prefill and single rows": [20] + [1] * 12,
    "prefill, a wide row, single rows": [20, 1, 5, 1, 1, 4],
    "uneven": [1, 2, 3, 9, 17],
}


@pytest.fixture
def norms_in_the_input_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers' RMSNorm computes in float32 even in a float64 model; here it keeps the dtype it is given."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.models.mistral.modeling_mistral import MistralRMSNorm
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    def forward(self: Any, hidden: Tensor) -> Tensor:
        return self.weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.variance_epsilon)

    for norm in (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm):
        monkeypatch.setattr(norm, "forward", forward)


@pytest.mark.parametrize("name", FAMILIES)
def test_float32_agrees_with_transformers_however_the_rows_are_split(name: str):
    reference, decoder = pair(config_of(name))
    expected = reference_logits(reference, ids())
    for sizes in SPLITS.values():
        assert_agree(chunks(decoder, sizes), expected, TOLERANCE[torch.float32])


@pytest.mark.usefixtures("norms_in_the_input_dtype")
@pytest.mark.parametrize("name", FAMILIES)
def test_float64_agrees_with_transformers_to_nine_digits(name: str):
    reference, decoder = pair(config_of(name), torch.float64)
    expected = reference_logits(reference, ids())
    for sizes in SPLITS.values():
        assert_agree(chunks(decoder, sizes), expected, TOLERANCE[torch.float64])


@pytest.mark.parametrize("name", FAMILIES)
def test_after_a_crop_nothing_remains_of_what_was_forgotten(name: str):
    reference, decoder = pair(config_of(name))
    expected = reference_logits(reference, ids())
    decoder.forward(ids()[:20])
    decoder.forward(torch.arange(10))  # a draft that will be rejected
    decoder.crop(20)
    assert decoder.length == 20
    assert_agree(decoder.forward(ids()[20:]), expected[20:], TOLERANCE[torch.float32])
    decoder.crop(3)
    assert_agree(decoder.forward(ids()[3:9]), expected[3:9], TOLERANCE[torch.float32])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_states_kept_at_an_exit_make_the_same_logits_as_a_plain_forward(name: str):
    """Every exit layer, every number of drafted rows, and rows after them that went through nothing."""
    config = config_of(name)
    _, decoder = pair(config, torch.float64)
    plain = chunks(decoder, [ROWS])
    for exit_layer in range(1, config["num_hidden_layers"]):
        for drafted in (1, 3, 6):
            for rest in (1, 2, 4):
                rows = ids()[20 : 20 + drafted + rest]
                decoder.crop(20)
                states = [decoder.early(row[None], exit_layer, 20 + at)[0] for at, row in enumerate(rows[:drafted])]
                got = decoder.forward(rows, ExitStates(exit_layer, torch.cat(states)))
                assert_agree(got, plain[20 : 20 + len(rows)], 1e-9)
                assert decoder.length == 20 + len(rows)
        decoder.crop(0)
        decoder.forward(ids()[:20])


@pytest.mark.parametrize("name", FAMILIES)
def test_last_only_is_the_last_row(name: str):
    _, decoder = pair(config_of(name))
    whole = decoder.forward(ids())[-1:]
    decoder.crop(0)
    assert_agree(decoder.forward(ids(), last_only=True), whole, TOLERANCE[torch.float32])


@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_is_finite_and_close(name: str):
    """Close: a correct bfloat16 forward of four layers stays within a few per cent of float32."""
    reference, _ = pair(config_of(name))
    expected = reference_logits(reference, ids())
    decoder = assemble(
        read_arch(config_of(name)), StateDictSource(reference.state_dict()), dtype=torch.bfloat16, context=ROWS + 8
    )
    got = chunks(decoder, SPLITS["uneven"]).float()
    assert torch.isfinite(got).all()
    assert (got - expected).abs().mean() / expected.abs().mean() < 0.1


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear", "factor": 2.5},
        LLAMA3_ROPE,
        YARN,
        None,
    ],
    ids=["linear", "llama3", "yarn", "none"],
)
def test_the_old_spelling_of_rope_means_the_same_as_the_new(scaling: dict[str, Any] | None):
    old = {**BASE, "rope_theta": 250000.0, "rope_scaling": scaling}
    fields = dict(scaling or {})
    kind = fields.pop("type", None) or fields.pop("rope_type", "default")
    new = {**BASE, "rope_parameters": {**fields, "rope_type": kind, "rope_theta": 250000.0}}
    assert read_arch(old) == read_arch(new)
    reference, decoder = pair(new)
    assert_agree(chunks(decoder, [ROWS]), reference_logits(reference, ids()), TOLERANCE[torch.float32])
    assert_agree(chunks(decoder, [ROWS]), reference_logits(transformers_model(old), ids()), TOLERANCE[torch.float32])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("partial_rotary_factor", 0.5),
        ("quantization_config", {"bits": 4}),
        ("is_causal", False),
        ("attention_chunk_size", 8),
        ("per_layer_config", {"0": {"sliding_window": 4}}),
        ("attribute_map", {"hidden_size": "vocab_size"}),
        ("get_text_config", 1),
        ("__class__", "x"),
    ],
)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_field_that_transformers_reads_and_we_do_not_honour_is_refused_by_name(
    family: str, field: str, value: object
):
    with pytest.raises(CheckpointError, match=field):
        read_arch({**BASE, "model_type": family, field: value})


def test_where_transformers_source_cannot_be_read_no_unknown_field_passes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(named_fields, "named", lambda _: frozenset())
    with pytest.raises(CheckpointError, match="of_another_day"):
        read_arch({**BASE, "of_another_day": "x"})


NOBODY_READS = {
    "attn_logit_softcapping": 50.0,
    "residual_multiplier": 0.22,
    "rope_interleaved": True,
    "num_experts": 8,
    "unsloth_version": "2024.9",
    "max_length": 20,
    "temperature": 0.6,
    "a_field_of_tomorrow": {"x": [1]},
}
SAYS_NOTHING = {  # what transformers reads, to another end
    "attention_dropout": 0.3,
    "initializer_range": 0.5,
    "use_cache": False,
    "chunk_size_feed_forward": 4,
    "is_encoder_decoder": True,
    "pretraining_tp": 2,
    "num_labels": 1,
    "problem_type": "regression",
    "output_hidden_states": True,
    "output_attentions": True,
    "eos_token_id": [1, 2],
    "architectures": ["X"],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("field", [*NOBODY_READS, *SAYS_NOTHING])
def test_a_field_that_passes_changes_nothing_that_transformers_computes(family: str, field: str):
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    config = {name: value for name, value in BASE.items() if name != "model_type"} | {"num_hidden_layers": 2}
    changed = {**config, field: {**NOBODY_READS, **SAYS_NOTHING}[field]}
    assert read_arch({**changed, "model_type": family}) == read_arch({**config, "model_type": family})
    found = []
    for said in (config, changed):
        known = CONFIG_MAPPING[family](**said, attn_implementation="eager")
        torch.manual_seed(0)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(known)](known).eval()
        weights = random_tensors({**config, "model_type": family}, seed=1, dtype=torch.float32)
        model.load_state_dict(weights)
        found.append(reference_logits(model, ids()))
    assert torch.equal(*found)


def test_a_field_that_nobody_reads_is_a_debug_line(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("DEBUG", "localspec"):
        read_arch({**BASE, "unsloth_fixed": True})
    (line,) = caplog.records
    assert (line.levelname, "unsloth_fixed = True" in line.getMessage()) == ("DEBUG", True)


def test_a_family_we_do_not_know_is_refused_by_name():
    with pytest.raises(CheckpointError, match="'gpt_neox'"):
        read_arch({**BASE, "model_type": "gpt_neox"})


def test_a_tensor_is_named_in_part_and_with_a_way_on():
    reader = WeightReader(StateDictSource({"y" * 5000: torch.zeros(1), "w": torch.zeros((1,) * 60)}))
    for refused in (lambda: reader.check("w", (4,)), lambda: reader.refuse_unused(tied_head=False)):
        with pytest.raises(CheckpointError, match="its config") as met:
            refused()
        assert len(met.value.message) < 300
        assert met.value.hint


def test_a_model_that_makes_embeddings_is_called_so():
    reader = WeightReader(StateDictSource({"embed_tokens.weight": torch.zeros(4, 2)}))
    with pytest.raises(CheckpointError, match=r"embedding model .* 'embed_tokens.weight'") as met:
        reader.check("model.embed_tokens.weight", (4, 2))
    assert "Download" not in met.value.hint


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    "field",
    ["num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "sliding_window", "rope_theta"],
)
def test_what_a_config_leaves_out_is_what_transformers_says(family: str, field: str):
    """A window of 4,096 positions is no window in a stand-in, so the self-check cannot see it."""
    from transformers import CONFIG_MAPPING

    heads = {"num_attention_heads": 32, "num_key_value_heads": 16, "hidden_size": 128, "head_dim": 8}
    said = {**BASE, **heads, "sliding_window": 7, "rope_theta": 5e5, "use_sliding_window": True, "max_window_layers": 0}
    left = {name: value for name, value in said.items() if name not in (field, "model_type")}
    arch, known = read_arch({**left, "model_type": family}), CONFIG_MAPPING[family](**left)
    assert arch.num_kv_heads == known.num_key_value_heads
    assert arch.head_dim == (getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads)
    assert arch.max_context == known.max_position_embeddings
    assert arch.norm_eps == known.rms_norm_eps
    assert arch.windows[-1] == (None if family == "llama" else known.sliding_window)
    assert dict(arch.rope)["rope_theta"] == known.rope_parameters["rope_theta"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, "5 heads, which do not divide into 2"),
        ({"head_dim": 33}, "heads of 33 channels; rotary embeddings need an even number"),
    ],
)
def test_heads_that_cannot_be_are_one_sentence(change: dict[str, int], says: str):
    with pytest.raises(CheckpointError, match=says):
        read_arch({**BASE, **change})


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, 0, -1, 2.5, "8", True])
def test_a_size_that_is_no_positive_whole_number_is_refused_by_name(field: str, value: object):
    with pytest.raises(CheckpointError, match=field):
        read_arch({**BASE, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention_dropout", 0.3),
        ("initializer_range", 0.5),
        ("use_cache", False),
        ("torch_dtype", "float16"),
        ("architectures", ["X"]),
        ("eos_token_id", [1, 2]),
        ("transformers_version", "9.9"),
        ("is_causal", True),
        ("attention_chunk_size", None),
    ],
)
def test_fields_that_say_nothing_about_a_forward_change_nothing(field: str, value: object):
    assert read_arch({**BASE, field: value}) == read_arch(BASE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda decoder: decoder.sin.neg_(), id="rotation backwards"),
        pytest.param(lambda decoder: decoder.weights.layers[1].qkv.weight.mul_(1.001), id="one weight off"),
        pytest.param(lambda decoder: decoder.cache.store[0, :2, 2:].zero_(), id="a cache row lost"),
    ],
)
def test_these_tolerances_notice_a_small_fault(change: Callable[[Decoder], object]):
    reference, decoder = pair(BASE)
    expected = reference_logits(reference, ids())
    decoder.forward(ids()[:20])
    change(decoder)
    with pytest.raises(AssertionError):
        assert_agree(decoder.forward(ids()[20:]), expected[20:], TOLERANCE[torch.float32])
