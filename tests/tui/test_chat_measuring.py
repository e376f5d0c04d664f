"""What the chat does beside the conversation: /fit, /bench, /template, links, and rest when nothing happens."""

from __future__ import annotations

import json
import sys
import webbrowser

import msgspec
import pytest
from textual.widgets import Markdown

from localspec.cli.main import cli
from localspec.config.reading import read
from localspec.config.tables import Config, EngineTable, ProvenanceTable, SpecTable, UiTable
from localspec.core.events import Loading, Memory
from localspec.core.requests import LoadRequest, SamplingOptions, SpecOptions
from localspec.models.named_templates import COMPLETION, NAMED
from localspec.tui.control import measurements
from localspec.tui.control.bench_run import arguments, as_text, read_figures
from localspec.tui.control.commands import COMMANDS
from localspec.tui.control.spec_switch import options_at_start
from localspec.tui.control.tuning import Tuning, begin
from localspec.tui.screens.link import LinkScreen, host
from localspec.tui.themes import colours
from tests.support.chat_stage import HELLO, Stage, open_chat
from tests.support.scripted_engine import READY, ScriptedEngine, answer, step

pytestmark = pytest.mark.heavy

FIGURES = """{"model": "guide", "quant": "int8", "notes": ["A note [/nope]."], "rows": [
{"method": "plain", "k": "0", "tokens_per_second": 100.04, "speedup": 1.0, "same": "8/8"},
{"method": "early exit 2", "k": "auto", "tokens_per_second": 160, "speedup": 1.6, "acceptance": 0.71, "same": "8/8"}]}
""".replace("\n", "")


def guide(config: Config | None = None) -> Tuning:
    return begin(config or Config(), "guide", load={}, sampling=SamplingOptions())


# --- /fit


@pytest.mark.parametrize("typed", ["/fit", "/fit 1,024"])
async def test_what_the_model_needs_is_shown_format_by_format(typed: str):
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        await stage.send(typed)
        tokens = "1,024" if "," in typed else "2,048"
        await stage.sees("fits, ", " left   ← localspec takes this", "It would be loaded in int8.")
        await stage.sees(f"guide at {tokens} tokens", "sum  of ", "int8", "int4")
        assert not stage.engine.requests


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("/fit much", "Write /fit, or /fit TOKENS"),
        ("/fit 99999", "made for a context of 32 to 2,048 tokens. Try: /fit 2048"),
    ],
)
async def test_a_context_that_is_none_is_told(typed: str, sentence: str):
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        await stage.send(typed)
        await stage.sees(sentence)


async def test_of_a_model_on_a_gpu_it_is_the_gpus_memory_that_counts():
    card = msgspec.structs.replace(READY.model, device="cuda:0")
    ready = msgspec.structs.replace(READY, model=card, memory=Memory(105 << 20, 0, 0, device_bytes=24 * 10**9))
    async with open_chat(ScriptedEngine(HELLO, opening=[ready]), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        assert stage.chat.state.held_bytes == 0, "none of it is main memory"
        await stage.send("/fit")
        await stage.sees("of 24.0 GB on the GPU", "bf16", "nf4", "It would be loaded in bf16.", "for the whole GPU")


async def test_what_does_not_fit_says_so_and_what_would_help(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1 << 20}))
    tiny = msgspec.structs.replace(READY, memory=Memory(1 << 20, 0, 0))  # what would be given back first
    async with open_chat(ScriptedEngine(HELLO, opening=[tiny]), tuning=guide(), size=(100, 30)) as stage:
        await stage.ready()
        await stage.send("/fit")
        await stage.sees("too large, ", "too little", "Not enough memory for guide", "Try ")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("away", ["not", "unloaded", "gone", "benchmarking"])
async def test_memory_is_given_back_by_a_model_that_is_there_and_by_no_other(
    away: str, monkeypatch: pytest.MonkeyPatch
):
    """The picker and /fit count it once, and /show tells of none that is away."""
    counted: list[int] = []
    monkeypatch.setattr(
        "localspec.runtime.local_models.on_disk", lambda *_, held_bytes, **__: counted.append(held_bytes) or []
    )
    monkeypatch.setattr(
        "localspec.tui.control.fit_report.what_fits",
        lambda *_, held_bytes, **__: counted.append(held_bytes) or "It fits.",
    )
    says(monkeypatch, "import time; time.sleep(600)")
    async with open_chat(ScriptedEngine(), tuning=guide(), size=(100, 40)) as stage:
        await stage.ready()
        if away == "gone":
            stage.engine.die()
        elif away != "not":
            await stage.send("/unload" if away == "unloaded" else "/bench")
        await stage.until(lambda: stage.chat.state.phase == (away if away != "not" else "idle"))
        await stage.send("/fit")
        await stage.sees("It fits.")
        await stage.send("/show")
        await stage.sees("weights 105 MB" if away == "not" else "Nothing is loaded.")
        await stage.pilot.press("ctrl+o")
        await stage.until(lambda: len(counted) == 2)
        assert counted == [118 << 20 if away == "not" else 0] * 2


# --- /bench


def says(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """In place of the bench, which measures for minutes."""
    monkeypatch.setattr(measurements, "command", lambda _: [sys.executable, "-c", program])


async def test_the_bench_has_the_machine_to_itself_and_the_chat_goes_on(monkeypatch: pytest.MonkeyPatch):
    says(monkeypatch, f"print({FIGURES!r})")
    first, second = ScriptedEngine(HELLO), ScriptedEngine(HELLO)
    async with open_chat(first, second, tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("plain", "100.0", "early exit 2", "×1.60", "71 %", "A note [/nope].")
        assert first.closed
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()
        await stage.send("hi")
        await stage.sees("Bye.", "idle")


def test_below_the_figures_the_chat_names_its_own_commands():
    """A path of a GGUF file broke two of the shell's over five lines."""
    lines = ["localspec bench /a/long/path.gguf --sweep exit-layer", "localspec pair /a/long/path.gguf --hub"]
    found = read_figures(FIGURES.replace('"rows"', f'"try": {json.dumps(lines)}, "rows"').encode())
    told = as_text(found)
    assert "\n/why lists what could draft for it, and /draft NAME loads that.\n" in told
    assert "localspec " not in told
    assert "/why" not in as_text(read_figures(FIGURES.encode()))


async def test_a_question_during_the_bench_waits_and_esc_ends_the_bench(monkeypatch: pytest.MonkeyPatch):
    says(monkeypatch, "import time; time.sleep(600)")
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("measuring: Esc cancels and loads the model again")
        await stage.send("hi")
        await stage.sees("You · queued")
        await stage.pilot.press("escape")
        await stage.sees("Bye.", "idle")
        assert len(stage.engines) == 2


def told(stage: str, done: int, unit: str, eta_s: float | None = None) -> str:
    return msgspec.json.encode(Loading(stage, done, 100, unit, eta_s)).decode()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("size", [(80, 24), (150, 36)])
@pytest.mark.parametrize(
    ("line", "state"),
    [
        (told("loading weights", 25, "bytes"), "loading weights 25 % · Esc cancels"),
        (told("plain, [/nope]\x1b", 0, "percent"), f"measuring {'░' * 10} 0 % · Esc cancels · plain, [/nope]␛"),
        (told("plain", 45, "percent", 71.6), f"measuring {'█' * 4}{'░' * 6} 45 % · eta 72 s · Esc cancels · plain"),
    ],
)
async def test_the_state_line_says_how_far_the_bench_is(
    size: tuple[int, int], line: str, state: str, monkeypatch: pytest.MonkeyPatch
):
    """And what is measured, as far as there is room; Esc ends it wherever it is."""
    says(monkeypatch, f"import time; print({line!r}, flush=True); time.sleep(600)")
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=guide(), size=size) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees(state)
        await stage.pilot.press("escape")
        await stage.until(lambda: len(stage.engines) == 2)
        await stage.ready()


async def test_figures_come_after_what_was_told_before_them(monkeypatch: pytest.MonkeyPatch):
    says(monkeypatch, f"print({told('plain', 100, 'percent', 0.0)!r}); print({FIGURES!r})")
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("early exit 2", "×1.60", "idle")


async def test_who_leaves_during_the_bench_leaves_no_engine_running(monkeypatch: pytest.MonkeyPatch):
    says(monkeypatch, "import time; time.sleep(600)")
    async with open_chat(ScriptedEngine(HELLO), tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("measuring: Esc cancels")
        await stage.pilot.press("ctrl+q")
        await stage.until(lambda: not stage.app.is_running)
    assert len(stage.engines) == 1


async def test_a_bench_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    says(monkeypatch, "import sys; print('error: It \\x1b[2J broke.', file=sys.stderr); sys.exit(5)")
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("The benchmark failed: It ␛[2J broke.", "idle")


async def test_a_bench_that_cannot_be_started_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measurements, "command", lambda _: ["/no/such/program"])
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=guide()) as stage:
        await stage.ready()
        await stage.send("/bench")
        await stage.sees("The benchmark could not be started (No such file or directory).", "idle")


async def test_the_bench_waits_until_an_answer_has_ended():
    engine = ScriptedEngine(HELLO, paused=True)
    async with open_chat(engine, tuning=guide()) as stage:
        await stage.begins("hi")
        await stage.send("/bench")
        await stage.sees("Wait until the model is loaded")


def test_what_is_asked_of_the_bench_is_what_its_command_takes():
    load = LoadRequest.of(
        "./-odd", draft="early-exit:2", quant="int4", ctx=512, threads=1, keep_head=True, max_memory="8GB"
    )
    bench = cli.commands["bench"]
    given = bench.make_context("bench", arguments(load)[1:]).params
    named = ("model", "draft", "quant", "ctx", "threads", "keep_head", "max_memory", "output")
    assert [given[name] for name in named] == ["./-odd", "early-exit:2", "int4", 512, 1, True, "8GB", "jsonl"]


def test_figures_that_could_not_be_measured_are_dashes():
    rows = as_text(read_figures(b'{"model": "m", "quant": "q", "rows": [{"method": "x", "k": "4"}]}'))
    assert rows.splitlines()[-1].split() == ["x", "4", "–", "–", "–", "–"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["template", "bench", "fit"])
async def test_they_are_listed_wherever_commands_are(name: str):
    usage = COMMANDS[name].usage
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(100, 140)) as stage:
        await stage.ready()
        await stage.write(f"/{name[:3]}")
        await stage.sees(f"› {usage}")
        await stage.pilot.press("ctrl+c", "f1")
        await stage.sees(usage)
        await stage.pilot.press("escape", "ctrl+p", *name)
        await stage.sees(usage)


# --- /template


async def test_a_template_holds_from_the_next_question_on():
    async with open_chat(ScriptedEngine(HELLO, HELLO, HELLO), tuning=guide(), size=(100, 24)) as stage:
        await stage.ready()
        await stage.send("/template")
        await stage.sees("Template: auto, the model's own. Available: auto, none, chatml")
        await stage.send("/template chatml")
        await stage.sees("From the next question on: template chatml.")
        await stage.send("one")
        await stage.until(lambda: len(stage.engine.requests) == 1 and stage.chat.state.phase == "idle")
        await stage.send("/template auto")
        await stage.until(lambda: stage.chat.tuning.template is None)
        await stage.send("two")
        await stage.until(lambda: len(stage.engine.requests) == 2)
        assert [asked.template for asked in stage.engine.requests] == [NAMED["chatml"], None]


async def test_a_template_that_is_none_goes_back_into_the_prompt():
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(), size=(100, 24)) as stage:
        await stage.ready()
        await stage.send("/template chatmi")
        await stage.sees("There is no template 'chatmi'; did you mean 'chatml'?", "/template chatmi")
        assert stage.chat.tuning.template is None


async def test_a_base_model_continues_the_text_and_says_how_to_chat():
    base = msgspec.structs.replace(READY, model=msgspec.structs.replace(READY.model, chat=False))
    engine = ScriptedEngine(HELLO, opening=(base,))
    async with open_chat(engine, tuning=guide(), size=(100, 24)) as stage:
        await stage.sees("This is a base model without a chat template: it completes the text.", "/template chatml")
        await stage.send("once")
        await stage.until(lambda: engine.requests)
        assert engine.requests[0].template is COMPLETION


# --- links


async def with_link(stage: Stage, address: str) -> None:
    await stage.ready()
    await stage.send("hi")
    await stage.sees("a link", "idle")
    stage.chat.query(Markdown).first().post_message(Markdown.LinkClicked(stage.chat.query(Markdown).first(), address))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("key", "opened"), [("enter", True), ("o", True), ("escape", False)])
async def test_a_link_opens_only_when_the_user_says_so(key: str, opened: bool, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr("localspec.tui.control.external_programs.browse", lambda address: asked.append(address) or True)
    address = "https://good.example@evil.example/a?b=[/nope]"
    async with open_chat(ScriptedEngine(answer(step("[a link](https://x.example)", accepted=0)))) as stage:
        await with_link(stage, address)
        await stage.until(lambda: isinstance(stage.app.screen, LinkScreen))
        await stage.sees("This link leads to evil.example", address, "Open it in the browser", "Copy it")
        assert not asked
        await stage.pilot.press(key)
        await stage.until(lambda: stage.app.screen is stage.chat)
        await stage.until(lambda: asked == [address] * opened)


async def test_a_link_to_anything_but_the_web_is_refused():
    async with open_chat(ScriptedEngine(answer(step("[a link](https://x.example)", accepted=0)))) as stage:
        await with_link(stage, "file:///etc/passwd")
        await stage.sees("This link is not opened: only http and https are.")
        assert stage.app.screen is stage.chat


async def test_where_there_is_no_browser_the_address_is_copied(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))  # would draw over the chat
    copied: list[str] = []
    async with open_chat(ScriptedEngine(answer(step("[a link](https://x.example)", accepted=0)))) as stage:
        monkeypatch.setattr(stage.app, "copy_to_clipboard", copied.append)
        await with_link(stage, "https://x.example")
        await stage.until(lambda: isinstance(stage.app.screen, LinkScreen))
        await stage.pilot.press("enter")
        await stage.sees("No browser can be opened here; the address is copied.")
        assert copied == ["https://x.example"]


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("https://a.example/b?c#d", "a.example"),
        ("HTTP://a.example:80", "a.example"),
        ("https://x@y@a.example/", "a.example"),
        ("http://[::1]:8000/", "[::1]"),
        ("javascript:alert(1)", ""),
        ("https:a.example", ""),
        ("https://a.example\\@b.example", ""),
        ("https://a.example/ b", ""),
        ("mailto:a@b.example", ""),
    ],
)
def test_where_a_link_leads(address: str, leads_to: str):
    assert host(address) == leads_to


# --- rest, colours, pace


@pytest.mark.slow
async def test_a_chat_in_which_nothing_happens_frees_the_memory():
    tuning = guide(Config(engine=EngineTable(idle_unload="1s")))
    async with open_chat(ScriptedEngine(HELLO), ScriptedEngine(HELLO), tuning=tuning) as stage:
        await stage.sees("unloaded: the next question loads it again")
        await stage.until(lambda: stage.engine.closed)
        await stage.send("hi")
        await stage.sees("Bye.")


async def test_with_idle_unload_off_it_stays():
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(Config(engine=EngineTable(idle_unload="off")))) as stage:
        await stage.ready()
        assert stage.chat.state.rest is None


async def test_the_settings_reach_the_screen():
    table = UiTable(max_fps=4, window_messages=40, animations="none", provenance=ProvenanceTable(draft="#123456"))
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(Config(ui=table))) as stage:
        await stage.ready()
        assert stage.app.animation_level == "none"
        assert stage.chat.engine.pace._frame == 0.25
        assert (stage.chat.transcript._window, stage.chat.transcript._most) == (40, 120)
        await stage.send("hi")
        await stage.sees("Bye.", "idle")
        await stage.pilot.press("f3")
        await stage.sees("md [tok]", "Hello")
        strips = stage.app.screen._compositor.render_strips()
        looks = [segment.style for strip in strips for segment in strip if segment.text.startswith("Hello")]
        assert [str(look.color.name) for look in looks if look and look.color] == ["#123456"]


async def test_a_colour_that_the_theme_lacks_is_told_and_the_built_in_one_stays():
    table = UiTable(provenance=ProvenanceTable(fix="$nope"))
    async with open_chat(ScriptedEngine(HELLO), tuning=guide(Config(ui=table)), size=(100, 24)) as stage:
        await stage.sees("ui.provenance.fix: $nope is not a colour of this theme.")
        variables = stage.app.theme_variables
        assert variables["token-fix"] == colours(ProvenanceTable(), variables)["token-fix"]


def test_every_setting_there_is_can_be_listed_set_and_read_again(capsys: pytest.CaptureFixture[str]):
    for key, value in {"spec.mode": "off", "ui.provenance.bonus": "$primary", "engine.idle_unload": "2h"}.items():
        cli.main(["config", "set", key, value], standalone_mode=False)
    cli.main(["config", "show", "--origin"], standalone_mode=False)
    listed = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert (listed["spec.mode"][0], listed["ui.provenance.bonus"][0]) == ("off", "$primary")
    assert listed["ui.max_fps"] == ["20", "built-in"]
    assert "ui.provenance" not in listed
    assert read().engine.idle_seconds == 7200


def test_the_switch_begins_where_the_settings_say():
    spec = msgspec.structs.replace(READY.spec, k=4, mode="off")
    assert options_at_start(spec) == SpecOptions("off", 4)
    assert Config(spec=SpecTable(mode="off")).spec.mode == "off"
