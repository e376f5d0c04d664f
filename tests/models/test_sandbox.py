"""The sandbox: the same ids as without it, limits that end it and name the file, and jobs that are no longer wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localspec.core.errors import Cancelled, CheckpointError, UsageError
from localspec.core.events import Done as AnswerDone
from localspec.core.requests import GenerateRequest, LoadRequest, Message
from localspec.models import sandbox as sandboxes
from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import open_snapshot
from localspec.models.named_templates import NAMED, find
from localspec.models.prompt import Prompter
from localspec.models.prompt_sandbox import SandboxedPrompter
from localspec.models.sandbox import Sandbox
from localspec.models.sandbox_jobs import EncodeChat, Ids, OpenPrompter, PrompterOpened, TokenizerText
from localspec.runtime.api import load
from localspec.runtime.worker import EngineProcess
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, KINDS, gpt2_like

pytestmark = pytest.mark.heavy

HELLO = (Message("user", "hello"),)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"


def opening(template: str, **specials: str) -> OpenPrompter:
    return OpenPrompter(TokenizerText(gpt2_like().to_str(), "x/tokenizer.json"), "tiny", template, specials)


@pytest.fixture
def warm_sandboxes() -> None:
    """As users have them."""


@pytest.fixture
def box() -> Sandbox:
    return Sandbox()  # which ends with the test that holds it


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less time than a template of the user's would get."""
    monkeypatch.setattr(sandboxes, "SECONDS", 0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_prompter_in_this_process(kind: str, box: Sandbox):
    make, template, specials = KINDS[kind]
    tokenizer, turns = make(), (Message("user", "hello <|im_end|>"), Message("assistant", "Yes."), Message("user", "x"))
    compiled = ChatTemplate(template, name="tiny", special_tokens=specials)
    here = Prompter(tokenizer, name="tiny", template=compiled, special_tokens=specials)
    card = box.ask(OpenPrompter(TokenizerText(tokenizer.to_str(), "x"), "tiny", template, specials), PrompterOpened)
    there = SandboxedPrompter(tokenizer, box, card)
    assert (there.control_ids, there.num_ids, there.can_chat) == (here.control_ids, here.num_ids, here.can_chat)
    for template in (None, NAMED["words"]):
        assert there.using(template).control_ids == here.using(template).control_ids
        assert there.using(template).chat(turns) == here.using(template).chat(turns)
        assert there.using(template).words(turns, "an answer") == here.using(template).words(turns, "an answer")
    assert there.text("a <|im_end|>") == here.text("a <|im_end|>")


def test_a_fault_in_it_is_our_error(box: Sandbox):
    box.ask(opening("{{ raise_exception('no') }}"), PrompterOpened)
    with pytest.raises(UsageError, match="refuses this conversation: no"):
        box.ask(EncodeChat(HELLO, None), Ids)


@pytest.mark.usefixtures("short")
def test_time_that_a_template_needs_is_limited_and_the_next_job_is_done(box: Sandbox):
    template = "{% if messages[0].content == 'hello' %}" + ENDLESS + "{% endif %}{{ messages[0].content }}"
    box.ask(opening(template), PrompterOpened)
    with pytest.raises(CheckpointError, match=r"chat template of 'tiny' needs more than \d seconds") as caught:
        box.ask(EncodeChat(HELLO, None), Ids)
    assert caught.value.hint
    assert box.ask(EncodeChat((Message("user", "x"),), None), Ids).ids


def test_memory_that_a_template_needs_is_limited(box: Sandbox):
    with pytest.raises(CheckpointError, match=r"chat template of 'tiny' needs more than .* of memory"):
        box.ask(opening(DOUBLING), PrompterOpened)


def test_what_is_not_wanted_any_more_is_given_up_and_the_next_job_is_done(box: Sandbox):
    """Esc while a template runs for ever: its time is not waited for."""
    box.ask(opening("{% if messages[0].content == 'hello' %}" + ENDLESS + "{% endif %}y"), PrompterOpened)
    glances = iter([False, True])
    with pytest.raises(Cancelled):
        box.ask(EncodeChat(HELLO, None), Ids, lambda: next(glances))
    assert box.ask(EncodeChat((Message("user", "x"),), None), Ids, lambda: False).ids


def test_a_process_that_was_killed_is_started_again(box: Sandbox):
    box.ask(opening(CHATML), PrompterOpened)
    before = box.ask(EncodeChat(HELLO, None), Ids)
    assert box._process is not None
    os.kill(box._process._popen.pid, signal.SIGKILL)
    box._process._popen.wait()
    assert box.ask(EncodeChat(HELLO, None), Ids) == before


@pytest.mark.slow
def test_it_ends_with_the_process_that_asked():
    """Also where that was killed, and while a template runs."""
    program = (
        "from localspec.models.sandbox import Sandbox; from localspec.models.sandbox_jobs import *;"
        "from tests.models.test_sandbox import *; import os; box = Sandbox(); sandboxes.SECONDS = 0.5;"
        "box.ask(opening(CHATML), PrompterOpened); print(box._process._popen.pid, flush=True);"
        "box._process._popen.stdin.flush(); sys.stdin.read()"
    )
    asking = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert asking.stdout is not None
    child = int(asking.stdout.readline())
    asking.kill()
    asking.communicate()
    while is_running(child):
        time.sleep(0.02)  # pytest's timeout is the limit


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_nothing_is_imported_from_the_folder_one_is_in(box: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A model's folder may hold a json.py."""
    for name in ("json", "tokenizers", "msgspec", "localspec", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('canary', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert box.ask(opening(CHATML), PrompterOpened).can_chat
    assert not (tmp_path / "canary").exists()


@pytest.mark.usefixtures("short")
def test_a_users_own_template_is_tried_in_it_too(tmp_path: Path):
    """Jinja computes what is constant when it compiles."""
    (tmp_path / "high.jinja").write_text("{{ 9 ** (9 ** 9) }}")
    with pytest.raises(UsageError, match=r"chat template of 'high\.jinja' needs more than \d seconds"):
        find(str(tmp_path / "high.jinja"))


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model whose template runs for ever, once it is asked "hello"."""
    folder = tmp_path_factory.mktemp("models") / "endless"
    template = "{% if messages[0].content == 'hello' %}" + ENDLESS + "{% endif %}" + CHATML
    save_snapshot(folder, gpt2_like(), template=template)
    return folder


@pytest.mark.usefixtures("verified", "short")
def test_python_gets_one_sentence_and_the_model_lives_on(endless: Path):
    with load(str(endless), draft="off") as llm:
        with pytest.raises(CheckpointError, match="needs more than"):
            llm.generate([{"role": "user", "content": "hello"}], max_tokens=2)
        assert llm.generate([{"role": "user", "content": "x"}], max_tokens=2).tokens


@pytest.mark.usefixtures("verified")
def test_an_answer_is_cancelled_while_its_prompt_is_made(endless: Path):
    with load(str(endless), draft="off") as llm:
        stream = llm.stream([{"role": "user", "content": "hello"}])
        stream.cancel()
        (done,) = stream
        assert isinstance(done, AnswerDone)
        assert (done.finish_reason, done.stats.predicted_n, done.stats.prompt_n) == ("cancelled", 0, 0)


@pytest.mark.usefixtures("warm_engines")
def test_the_chats_engine_stops_at_once(endless: Path):
    engine = EngineProcess(LoadRequest(str(endless), draft="off"), "tests.support.warm:open_verified")
    engine.start()
    try:
        events = engine.events()
        while next(events).type != "ready":
            pass
        engine.ask(GenerateRequest(HELLO))
        engine.cancel()
        assert next(events).type == "done"
        engine.ask(GenerateRequest((Message("user", "x"),), max_tokens=2))
        assert next(events).type == "prefill"
    finally:
        engine.close()


@pytest.mark.usefixtures("verified")
def test_a_closed_model_leaves_no_process(endless: Path):
    llm = load(str(endless), draft="off")
    prompter = llm._model.state.parts.prompter
    assert isinstance(prompter, SandboxedPrompter)
    process = prompter.sandbox._process
    assert process is not None
    llm.close()
    assert not process.lives


def test_a_snapshots_own_files_are_what_it_opens(endless: Path):
    prompter = SandboxedPrompter.open(open_snapshot(endless))
    assert prompter.chat((Message("user", "x"),))
    assert prompter.tokenizer.token_to_id("<|im_end|>") in prompter.control_ids
    prompter.close()
