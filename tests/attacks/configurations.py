"""config.json, the other JSON of a model's folder and the user's own files: of the wrong kind, or too much of it."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.config import reading
from localspec.core.errors import CHOOSE_ANOTHER
from localspec.models.catalog_file import EDIT
from tests.attacks.attack import Attack, Attacks, harmless, refused
from tests.attacks.spoiling import gone, instead, link, listening, sparse, with_fields, without, written

CONFIG, GENERATION = "model/config.json", "model/generation_config.json"
WORDS, TEMPLATE = "model/tokenizer_config.json", "model/chat_template.jinja"
MODELS, SETTINGS = "config/models.toml", "config/config.toml"
NO_FILE = " cannot be read (it is not a file)."
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
DEEP_KEY = "a." * 50_000 + "b = 1"
DEEP_TOML = "x = " + "[" * 100_000 + "]" * 100_000
FETCH = "Download the model again."
NO_CODE = "localspec runs no code from models. Choose another copy, or remove the field if you trust it."


def nested(depth: int) -> dict[str, object]:
    found: dict[str, object] = {"a": 1}
    for _ in range(depth):
        found = {"a": found}
    return found


FILES: Attacks = refused(
    f"{{0}}/{CONFIG}",
    {
        "no configuration": (gone(CONFIG), " is missing: this is not the folder of a model."),
        "a configuration of no bytes": (written(CONFIG, ""), " is empty."),
        "half a configuration": (written(CONFIG, '{"model_type": "llama"'), " is not valid JSON (…)."),
        "a page of the web for a configuration": (written(CONFIG, "<!DOCTYPE html>"), " is not valid JSON (…)."),
        "a configuration that is a list": (written(CONFIG, "[1]"), " is not a JSON object."),
        "a configuration that is not UTF-8": (written(CONFIG, b'{"model_type": "\xff"}'), " is not UTF-8 text."),
        "a key twice": (
            written(CONFIG, '{"model_type": "llama", "model_type": "gpt2"}'),
            " is not valid JSON (the key 'model_type' appears twice).",
        ),
        "a configuration nested 100,000 deep": (written(CONFIG, DEEP), " is nested too deep."),
        "a configuration nested 40 deep": (with_fields(CONFIG, **nested(40)), " is nested too deep."),
        "a number of 100,000 digits": (
            written(CONFIG, b'{"a":' + b"9" * 100_000 + b"}"),
            " is not valid JSON (a number has 100,000 digits).",
        ),
        "a number that overflows": (
            written(CONFIG, '{"model_type": "llama", "x": 1e999}'),
            " is not valid JSON (the number 1e999 is not finite).",
        ),
        "a literal NaN": (
            written(CONFIG, '{"model_type": "llama", "x": NaN}'),
            " is not valid JSON (the number NaN is not finite).",
        ),
        "a configuration of 11 MB": (
            sparse(CONFIG, 11 << 20),
            " is too large (11,534,336 bytes, at most 10,485,760 are read).",
        ),
        "a configuration of 120,000 objects": (
            with_fields(CONFIG, some=[{"a": 1}] * 120_000),
            " has too many values (at most 100,000 are read).",
        ),
        "a fifo for a configuration": (instead(CONFIG, os.mkfifo), NO_FILE),
        "a folder for a configuration": (instead(CONFIG, Path.mkdir), NO_FILE),
        "zeros without end for a configuration": (instead(CONFIG, link("/dev/zero")), NO_FILE),
        "a link to itself for a configuration": (
            instead(CONFIG, link("config.json")),
            " is missing: this is not the folder of a model.",
        ),
    },
)
FIELDS: Attacks = {
    **refused(
        f"{{0}}/{CONFIG}",
        {
            "no model_type": (without(CONFIG, "model_type"), " does not say its model_type."),
            "a thousand layers": (
                with_fields(CONFIG, num_hidden_layers=1000),
                " describes at least 259,240 bytes of weights, but there are 175,872.",
            ),
            "more words than rows": (
                with_fields(CONFIG, vocab_size=4_000_000),
                " describes at least 32,001,024 bytes of weights, but there are 175,872.",
            ),
            "no layers": (
                with_fields(CONFIG, num_hidden_layers=0),
                ": num_hidden_layers = 0 is out of range (1 to 1,000).",
            ),
            "layers in words": (
                with_fields(CONFIG, num_hidden_layers="4"),
                ": num_hidden_layers = '4' is text, not a number.",
            ),
            "a context of 10^12": (
                with_fields(CONFIG, max_position_embeddings=10**12),
                ": max_position_embeddings = 1000000000000 is out of range (1 to 100,000,000).",
            ),
            "rope of a factor of 0": (
                with_fields(CONFIG, rope_scaling={"type": "linear", "factor": 0}),
                ": factor = 0 is out of range (0.001 to 1,000,000,000,000).",
            ),
            "a negative epsilon": (
                with_fields(CONFIG, rms_norm_eps=-1.0),
                ": rms_norm_eps = -1.0 is out of range (0 to 1).",
            ),
            "a width that heads do not divide": (
                with_fields(CONFIG, num_attention_heads=5),
                ": 5 heads do not divide into 2 key-value heads.",
            ),
            "more key-value heads than heads": (
                with_fields(CONFIG, num_key_value_heads=8),
                ": 4 heads do not divide into 8 key-value heads.",
            ),
        },
    ),
    **refused(
        f"{{0}}/{CONFIG} has the field ",
        {
            "code to run": (
                with_fields(CONFIG, trust_remote_code=True),
                "'trust_remote_code', which lets foreign code run unasked.",
            ),
            "code to run, deep": (
                with_fields(CONFIG, text_config={"_attn_implementation_internal": "a/b"}),
                "'_attn_implementation_internal', which names foreign code, a kernel to be fetched and run.",
            ),
        },
        hint=NO_CODE,
    ),
    **refused(
        "The config says num_hidden_layers = ",
        {
            "a layer fewer than the weights": (
                with_fields(CONFIG, num_hidden_layers=3),
                "3, and the checkpoint has 4.",
            ),
            "a layer more than the weights": (
                with_fields(CONFIG, num_hidden_layers=5),
                "5, and the checkpoint has 4.",
            ),
        },
    ),
    **refused(
        "The checkpoint's '",
        {
            "another width than the weights": (
                with_fields(CONFIG, hidden_size=64),
                "model.embed_tokens.weight' is (405, 32), and its config says (405, 64).",
            ),
            "another inner width than the weights": (
                with_fields(CONFIG, intermediate_size=49),
                "model.layers.0.mlp.gate_proj.weight' is (48, 32), and its config says (49, 32).",
            ),
        },
        hint=FETCH,
    ),
    **refused(
        "",
        {
            "fewer words than rows": (
                with_fields(CONFIG, vocab_size=100),
                "{0}/model/tokenizer.json has ids up to 399 and the model 100 rows.",
            ),
            "rope that is a word": (
                with_fields(CONFIG, rope_scaling="linear"),
                "config.json has rope_scaling = 'linear'; it must be an object.",
            ),
        },
    ),
    **refused(
        "Models of type '",
        {
            "a model_type of 5,000 letters": (with_fields(CONFIG, model_type="y" * 5000), "y" * 40 + "'"),
            "a model_type of escapes": (with_fields(CONFIG, model_type="\x1b]0;mine\x07"), "␛]0;mine'"),
        },
        hint="are not supported yet. localspec runs Llama, …",
    ),
    **refused(
        "This model is quantised already, by ",
        {
            "quantised by nobody knows what": (
                with_fields(CONFIG, quantization_config={"quant_method": "x" * 99}),
                "x" * 40 + " (quantization_config), which localspec cannot run.",
            ),
            "quantised to eight bits": (
                with_fields(CONFIG, quantization_config={"quant_method": "bitsandbytes"}),
                "bitsandbytes (quantization_config), which localspec cannot run.",
            ),
        },
        hint="Choose its 16-bit copy, or one that …",
    ),
    **refused(
        "config.json ",
        {
            "an activation that nobody knows": (
                with_fields(CONFIG, hidden_act="rm -rf"),
                "asks for hidden_act = 'rm -rf', which localspec cannot run.",
            ),
            "rope of a kind that nobody knows": (
                with_fields(CONFIG, rope_scaling={"rope_type": "x", "factor": 2}),
                "asks for rope_type = 'x', which localspec cannot run.",
            ),
            "an odd head": (
                with_fields(CONFIG, head_dim=7),
                "describes heads of 7 channels; rotary embeddings need an even number.",
            ),
        },
        hint=CHOOSE_ANOTHER,
    ),
    **harmless(
        {
            "a window of 0, which this family has not": with_fields(CONFIG, sliding_window=0),
            "a context of 10^8": with_fields(CONFIG, max_position_embeddings=10**8),
            "an end that is no number": with_fields(CONFIG, eos_token_id={"a": 1}),
            "ends beyond the words": with_fields(CONFIG, eos_token_id=[-1, 10**9]),
        }
    ),
}
BASE = "info: This is a base model without a chat template: it completes the text."
OTHERS: Attacks = {
    **refused(
        "{0}/",
        {
            "a generation that is a list": (written(GENERATION, "[]"), f"{GENERATION} is not a JSON object."),
            "a fifo for a generation": (instead(GENERATION, os.mkfifo), f"{GENERATION}{NO_FILE}"),
            "words of a tokenizer nested 100,000 deep": (written(WORDS, DEEP), f"{WORDS} is nested too deep."),
            "a socket for a template": (instead(TEMPLATE, listening), f"{TEMPLATE}{NO_FILE}"),
            "a template that links to nothing": (
                instead(TEMPLATE, link("blob")),
                f"{TEMPLATE} cannot be read (No such file or directory).",
            ),
            "a generation that links to itself": (
                instead(GENERATION, link("generation_config.json")),
                f"{GENERATION} cannot be read (Too many levels of symbolic links).",
            ),
            "a tokenizer that links to nothing": (
                instead("model/tokenizer.json", link("blob")),
                "model/tokenizer.json cannot be read (No such file or directory).",
            ),
        },
    ),
    **refused(
        f"{{0}}/{GENERATION} has the field ",
        {
            "code to generate with": (
                with_fields(GENERATION, custom_generate="attacker/repository"),
                "'custom_generate', which names foreign code, to be fetched and run for every answer.",
            )
        },
        hint=NO_CODE,
    ),
    **refused(
        "The chat template in ",
        {"a template of 100 kB": (with_fields(WORDS, chat_template="x" * 100_000), f"{{0}}/{WORDS} is too large.")},
    ),
    "a template that is a number": Attack(with_fields(WORDS, chat_template=5), BASE, 0),
    "templates without a default": Attack(with_fields(WORDS, chat_template=[{"name": "x"}, 5]), BASE, 0),
    **harmless(
        {
            "a generation of fields of the wrong kind": with_fields(
                GENERATION, temperature="hot", top_k=-1, top_p=[], eos_token_id="x"
            ),
            "a generation at a temperature of 10^300": with_fields(GENERATION, temperature=1e300),
            "special tokens that are numbers": with_fields(WORDS, eos_token=5, bos_token=[], pad_token={}),
            "a decoder of added tokens that is none": with_fields(WORDS, added_tokens_decoder={"x": 5, "1": {}}),
        }
    ),
}
OWN: Attacks = {
    **refused(
        f"{{0}}/{MODELS}",
        {
            "models.toml that is none": (written(MODELS, "models = ["), ": Invalid value (at end of document)."),
            "models.toml of numbers": (
                written(MODELS, "schema_version = 1\nmodels = 5"),
                ": Expected `object`, got `int` - at `$.models`.",
            ),
            "models.toml of 2 MB": (
                written(MODELS, b"#" * (2 << 20)),
                " is too large: at most 1,048,576 bytes are read.",
            ),
            "models.toml nested 100,000 deep": (written(MODELS, DEEP_TOML), " is nested too deep."),
            "models.toml with a key of 50,000 parts": (written(MODELS, DEEP_KEY), " is nested too deep."),
            "a fifo for models.toml": (instead(MODELS, os.mkfifo), NO_FILE),
            "a folder for models.toml": (instead(MODELS, Path.mkdir), NO_FILE),
        },
        hint=EDIT,
        code=2,
    ),
    **refused(
        f"{{0}}/{SETTINGS}",
        {
            "config.toml that is not UTF-8": (written(SETTINGS, b"\xff"), " is not UTF-8 text (line 1)."),
            "config.toml nested 100,000 deep": (written(SETTINGS, DEEP_TOML), " is nested too deep."),
            "config.toml with a key of 50,000 parts": (written(SETTINGS, DEEP_KEY), " is nested too deep."),
        },
        hint=reading.EDIT,
        code=2,
    ),
    **refused(
        f"{{0}}/{SETTINGS}",
        {"a fifo for config.toml": (instead(SETTINGS, os.mkfifo), NO_FILE)},
        hint=reading.ELSEWHERE,
        code=2,
    ),
}
CONFIGURATIONS: Attacks = {**FILES, **FIELDS, **OTHERS, **OWN}
