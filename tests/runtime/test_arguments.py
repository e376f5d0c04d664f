"""Whatever is passed to the Python interface, only localspec's own errors come back: each is a sentence that names the
argument, and comes before a file of a model is read, or a process started."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from inspect import isfunction, signature
from typing import Any

import pytest

import localspec
from localspec.core.errors import LocalspecError, UsageError
from localspec.core.requests import (
    DraftModel,
    EarlyExit,
    GenerateRequest,
    LoadRequest,
    Message,
    Reference,
    SamplingOptions,
    SpecOptions,
    Template,
    WeightOptions,
)
from localspec.runtime.api import LLM
from localspec.runtime.chat import Chat
from localspec.runtime.model import Model
from localspec.runtime.model_state import ModelState
from localspec.runtime.slots import Slots

NAN, INF = float("nan"), float("inf")
Row = tuple[Callable[[], object], str]  # a call, and the argument that its error names
OPEN: Any = object.__new__(Model)  # with nothing in it: what reaches it fails otherwise
OPEN.state = object.__new__(ModelState)
OPEN.state._held = object()
UNLOADED = LLM(Slots(OPEN))
HI = {"role": "user", "content": "hi"}


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> Any:
        raise AssertionError("a model's files were opened, or the hub was asked")

    monkeypatch.setattr("localspec.runtime.open.open_snapshot", never)
    monkeypatch.setattr("localspec.hub.compatibility.open_snapshot", never)
    monkeypatch.setattr("localspec.hub.api.HubProcess", never)
    monkeypatch.setattr("localspec.hub.compatibility.HubProcess", never)


def each(call: Callable[..., object], **bad: list[object]) -> list[Row]:
    """A row for every value, by the name of its argument."""
    return [(lambda given={name: value}: call(**given), name) for name, values in bad.items() for value in values]  # type: ignore[misc]


def calls(call: Callable[..., object], values: list[object], name: str) -> list[Row]:
    return [(lambda value=value: call(value), name) for value in values]  # type: ignore[misc]


def asked(**fields: Any) -> LoadRequest:
    return LoadRequest("guide", **fields)


def weighed(**fields: Any) -> LoadRequest:
    return LoadRequest("guide", weights=WeightOptions(**fields))


LOADING = [
    *each(
        localspec.load,
        model=[5, None, b"guide", ["guide"], True, "", "no-such", "a\0b"],
        draft=[5, None, ["off"], "", "no-such", "early-exit:x", "early-exit:", "lookup:5", "lookup+", "a\0b"],
        quant=[5, None, "int3", "", True],
        device=[5, None, "tpu", "", "cpu:1"],
        ctx=["512", 0, -1, 2.5, True, NAN, [512]],
        k=[None, 2.5, True, -1, 17, "x", "", NAN, [4]],
        threads=["2", 0, -1, 10**9, 2.0, True, INF],
        keep_head=["yes", 1, None],
        int8_threshold=["6", None, True, -1, NAN, INF, 10**400],
        max_memory=[5, "", "5", "-5GB", "GB", True],
        save_quantized=["no", 0, None],
        draft_quant=[3, None, "int3"],
        parallel=[0, -1, 65, True, False, 2.0, "2", None],
        folding=["no", 1, None],
        no_such_option=[1],
    ),
    *calls(lambda draft: localspec.load(draft=draft), [EarlyExit(layer="2"), EarlyExit(layer=True)], "layer"),  # type: ignore[arg-type]
    (lambda: localspec.load(draft=DraftModel(5)), "model"),  # type: ignore[arg-type]
    (lambda: localspec.load(draft=EarlyExit(2, greedy="yes")), "greedy"),  # type: ignore[arg-type]
    (lambda: localspec.load("guide", "off"), "draft"),  # type: ignore[call-arg]
    *each(localspec.load_events, request=[5, "guide", None, {}]),
    *each(lambda **given: localspec.load_events(asked(**given)), model=[], draft=[5], k=["x", 2.5], folding=[1]),
    *each(lambda **given: localspec.load_events(asked(**given)), mode=["maybe"], probe_every=[0, "9"], weights=[{}]),
    *each(lambda **given: localspec.load_events(weighed(**given)), threads=["2"], max_memory=[5], ctx=["9"]),
    *each(lambda **given: LoadRequest.of("guide", **given), no_such_option=[1]),
]
MESSAGES: list[object] = [5, None, b"hi", HI, iter([HI]), [5], ["hi"], [("user", "hi")], [None], [[HI]]]
OPTIONS: dict[str, list[object]] = {
    "max_tokens": ["5", 0, -1, 2.5, True, NAN, INF, [5]],
    "stop": [5, None, [5], [None], b"x", ["end", ["x"]]],
    "continues": ["yes", 1, None],
    "speculate": ["yes", 1],
    "references": ["x", ["x"], None, Reference("file", "a", "b")],
    "beams": ["2", 0, -1, 65, True, None, 1.5],
    "logprobs": ["2", -1, 21, True, 0.5],
    "temperature": ["hot", -1, 101, NAN, INF, True, [1], 10**400],
    "top_k": ["5", -1, 2.5, True],
    "top_p": ["1", 0, -0.5, 2, NAN, True],
    "min_p": ["0", -1, 2, NAN, True],
    "repetition_penalty": ["1", 0, -1, INF, NAN, True],
    "seed": ["5", -2, 1 << 63, 1.5, True],
    "no_such_option": [1],
}


async def taken(**given: Any) -> None:
    async for _ in UNLOADED.astream("hi", **given):
        pass


ASKING = [
    *calls(UNLOADED.stream, [*MESSAGES, [], ()], "prompt"),
    *calls(UNLOADED.generate, MESSAGES, "prompt"),
    *calls(UNLOADED.stream, [[{}], [{"role": "user"}], [{"content": "x"}], [{**HI, "name": "x"}], [{1: 2}]], "message"),
    *calls(UNLOADED.stream, [[{**HI, "role": role}] for role in ("tool", None, 5, ["user"])], "role"),
    *calls(UNLOADED.stream, [[{**HI, "content": content}] for content in (None, 5, [HI])], "content"),
    *calls(UNLOADED.stream, [[Message(role, "hi")] for role in ("tool", None, 5)], "role"),  # type: ignore[arg-type]
    *calls(UNLOADED.stream, [[HI, Message("user", content)] for content in (None, 5, ["hi"])], "content"),  # type: ignore[arg-type]
    (UNLOADED.stream, "prompt"),
    (UNLOADED.generate, "prompt"),
    *each(lambda **given: UNLOADED.stream("hi", **given), **OPTIONS),
    *each(lambda **given: UNLOADED.generate([HI], **given), **OPTIONS),
    *each(lambda **given: asyncio.run(taken(**given)), max_tokens=["5"], no_such_option=[1]),
    *each(lambda **given: UNLOADED.generate_many(["hi"], **given), max_tokens=["5"], no_such_option=[1]),
    *calls(UNLOADED.generate_many, [5, None, "hi"], "prompts"),
    *calls(UNLOADED.generate_many, [[5], [None], b"hi"], "prompt"),
    *each(UNLOADED.answer, request=[5, None, "hi", {}, GenerateRequest()]),
    *each(lambda **given: UNLOADED.answer(GenerateRequest(prompt="hi"), **given), trace=[5], no_such_option=[1]),
    *each(UNLOADED.answer_many, requests=[5, None]),
    *each(lambda **given: UNLOADED.answer_many([], **given), cancelled=[True, None]),
    *each(
        lambda **given: UNLOADED.answer(GenerateRequest(**{"prompt": "hi", **given})),
        prompt=[5, b"hi"],
        messages=[5, "hi", ("hi",), (5,), (HI,)],
        stop=["end", 5, (5,)],
        max_tokens=["5", 0],
        sampling=[5, {}],
        temperature=[],
        continues=[1],
        spec=["on", SpecOptions],
        speculate=["on"],
        exit_layer=["2", 2.5, True],
        draft_probabilities=[1],
        template=["chatml"],
        references=[("x",), 5],
        beams=["2"],
        logprobs=["2"],
    ),
    *each(lambda **given: UNLOADED.answer(GenerateRequest(prompt="hi", sampling=SamplingOptions(**given))), top_p=[2]),
    *each(
        lambda **given: UNLOADED.answer(GenerateRequest(prompt="hi", spec=SpecOptions(**given))), mode=["x"], k=["x"]
    ),
    *each(
        lambda **given: UNLOADED.stream(
            "hi", references=[Reference(**{"kind": "file", "name": "a", "text": "b", **given})]
        ),
        kind=["url"],
        name=[5],
        text=[None],
        before=[5, ("x",)],
    ),
    *each(
        lambda **given: UNLOADED.answer(
            GenerateRequest(prompt="hi", template=Template(**{"name": "a", "source": "b", **given}))
        ),
        source=[5],
        stop=[5],
    ),
    *each(UNLOADED.steer, options=["off", 5, None]),
    *each(lambda **given: UNLOADED.steer(SpecOptions(**given)), mode=["maybe"], k=["x", 2.5, True, 17]),
    *each(UNLOADED.change_drafter, draft=[5, None]),
    *each(lambda **given: UNLOADED.change_drafter("off", **given), k=[None, 2.5, True, 17, "x"]),
    *each(lambda **given: UNLOADED.change_drafter("off", **given), draft_quant=[4, "int3"]),
    *each(UNLOADED.chat, system=[5, ["x"]]),
    *each(Chat(UNLOADED, None, {}).send, text=[5, None, HI]),
    *each(Chat(UNLOADED, None, {}).stream, text=[5, None, HI]),
    *each(Chat(UNLOADED, None, {}).save, path=[5, None]),
    (lambda: Chat(UNLOADED, None, {}).save("a\0b"), "file"),
    (lambda: Chat(UNLOADED, None, {}).save("/no/such/folder/file"), "file"),
    *each(lambda **given: Chat(UNLOADED, None, given).send("hi"), max_tokens=["5"], no_such_option=[1]),
]
MODELS = [
    *each(localspec.fit, model=[5, None, ""], no_such_option=[1]),
    *each(lambda **given: localspec.fit("guide", **given), draft=[5, None], quant=[5, "int3"], ctx=["9", 0, True]),
    *each(localspec.pair, target=[5, None], no_such_option=[1]),
    *each(lambda **given: localspec.pair("guide", **given), draft=[5, None], hub=["yes", 1]),
    *each(localspec.pull, model=[5, None, ""]),
    *each(
        lambda **given: localspec.pull("org/model", **given),
        draft=[5, None, "early-exit:3"],
        quant=[5, "int3"],
        ctx=["9", 0],
        xet=[1],
        accept_licence=["yes"],
        no_such_option=[1],
    ),
    *each(localspec.pull_events, model=[5, None]),
    *each(
        lambda **given: next(iter(localspec.pull_events("org/model", **given))), silence=["9", NAN], no_such_option=[1]
    ),
    *each(localspec.list_models, no_such_option=[1]),
]


@pytest.mark.parametrize(("call", "name"), [*LOADING, *ASKING, *MODELS])
def test_a_wrong_argument_is_refused_in_a_sentence_that_names_it(call: Callable[[], object], name: str):
    with pytest.raises(LocalspecError) as met:
        call()
    said = [word.replace("-", "_").lower() for word in re.findall(r"[A-Za-z][\w-]*", str(met.value))]
    assert name in said, str(met.value)
    assert met.value.message.endswith(".")
    assert met.value.hint
    assert "\n" not in str(met.value)
    assert len(str(met.value)) < 500


def test_it_says_what_it_takes():
    said = {}
    for name, value in {
        "threads": "2",
        "max_memory": 5,
        "parallel": 2.0,
        "device": None,
        "k": None,
        "draft": 5,
    }.items():
        with pytest.raises(UsageError) as met:
            localspec.load("guide", **{name: value})  # type: ignore[arg-type]
        said[name] = str(met.value)
    assert said == {
        "threads": "threads cannot be '2'. Use a whole number.",
        "max_memory": "max_memory cannot be 5. Use text, e.g. '8GB'.",
        "parallel": "parallel 2.0 is out of range. Use a whole number or 'auto'.",
        "device": "device cannot be None. Use text.",
        "k": "k cannot be None. Use auto, heuristic, or a whole number from 0 to 16.",
        "draft": "draft cannot be 5. Use text, an EarlyExit, a DraftModel or a path.",
    }


def test_of_a_list_the_item_is_named_and_of_that_the_field():
    with pytest.raises(
        UsageError, match=r"^prompt\[1\].role cannot be 'tool'\. Use 'system', 'user' or 'assistant'\.$"
    ):
        UNLOADED.stream([HI, Message("tool", "x")])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^stop\[1\] cannot be 5\. Use text\.$"):
        UNLOADED.stream("hi", stop=["end", 5])  # type: ignore[list-item]


@pytest.mark.parametrize("act", [Chat.retry, Chat.resume, lambda chat: chat.save("never written")])
def test_a_message_that_the_user_put_into_a_chat_is_checked(act: Callable[[Chat], object]):
    chat = UNLOADED.chat()
    chat.messages = [HI, ("assistant", "hello")]  # type: ignore[list-item]
    with pytest.raises(
        UsageError, match=r"^messages\[1\] cannot be \('assistant', 'hello'\)\. Use a Message or a dict"
    ):
        act(chat)


def test_every_public_function_checks_its_arguments():
    """Whatever comes later, too: what takes arguments is `checked`."""
    functions = [thing for name in localspec.__all__ if isfunction(thing := getattr(localspec, name))]
    methods = [
        thing
        for kind in (LLM, Chat)
        for name, thing in vars(kind).items()
        if isfunction(thing) and not name.startswith("_") and len(signature(thing).parameters) > 1
    ]
    assert len(functions) >= 7
    assert len(methods) >= 10
    assert [one.__qualname__ for one in (*functions, *methods) if not hasattr(one, "__wrapped__")] == []
