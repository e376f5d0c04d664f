"""The attack: a model's folder with code of its own, and every field that ever made a program run it.

The model is loaded and answers, because what it is can be built without that code, of which nothing runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec import load
from tests.support.generic_models import make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

AUTO = {
    "AutoConfig": "configuration_evil.EvilConfig",
    "AutoModel": "modeling_evil.Evil",
    "AutoModelForCausalLM": "modeling_evil.Evil",
    "AutoTokenizer": ["tokenization_evil.Evil", None],
}
FILES = ("configuration_evil.py", "modeling_evil.py", "tokenization_evil.py", "__init__.py", "conftest.py")
FILES += ("modeling_llama.py", "configuration_llama.py", "generate.py", "custom_generate/generate.py", "setup.py")


def with_code(folder: Path, ran: Path) -> None:
    """Each file of code says that it ran; the configurations name them."""
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"open({str(ran)!r}, 'a').write({name!r})\nclass Evil: ...\nEvilConfig = Evil\n")
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        file = folder / name
        fields: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        fields |= {"auto_map": AUTO, "_attn_implementation": "sdpa", "tokenizer_class": "Evil"}
        file.write_text(json.dumps(fields))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_code_that_a_folder_brings_never_runs(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, ran, tokenizer = tmp_path / "model", tmp_path / "ran", gpt2_like()
    if family == "llama":
        save_snapshot(folder, tokenizer, template=CHATML, eos="<|im_end|>")
    else:
        save_generic(make_model(family, vocab_size=tokenizer.get_vocab_size()).float(), folder, tokenizer)
    with_code(folder, ran)
    monkeypatch.chdir(folder)
    with load(str(folder), draft="off", quant="fp32", threads=1) as llm:
        assert llm.generate("hello", max_tokens=4).tokens
    assert not ran.exists()
    assert not any(name.startswith("transformers_modules") or "evil" in name for name in sys.modules)


def test_a_type_of_its_own_is_not_supported_whatever_code_comes_with_it(tmp_path: Path) -> None:
    folder, ran = tmp_path / "model", tmp_path / "ran"
    save_snapshot(folder, gpt2_like(), template=CHATML)
    with_code(folder, ran)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": "evil"}))
    with pytest.raises(Exception, match="Models of type 'evil' are not supported yet"):
        load(str(folder), draft="off", quant="fp32", threads=1)
    assert not ran.exists()
