"""A shape that chats: random weights, a word for every id, speculation with forced agreement. For measuring readers.

Opens as any model does, so that the worker, the chat and `run` take it as one. Its text means nothing, and is the same
every time.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from benchmarks.shapes.agreement import ForcedAgreement
from benchmarks.shapes.random_weights import SHAPES, make_decoder, random_tensors
from localspec.core import paths, processor
from localspec.core.errors import UsageError
from localspec.core.events import Loading, Memory, ModelCard, Notice, Ready, SpecCard
from localspec.core.requests import ChangeDrafter, LoadRequest, Message, SamplingOptions
from localspec.core.weight_formats import ListedFormat
from localspec.engine.decode import decode
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.policy.named import Constant
from localspec.engine.policy.steerable import SteerablePolicy
from localspec.engine.samplers import Greedy
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from localspec.models.chat_template import ChatTemplate
from localspec.models.prompt import Prompter
from localspec.runtime.model import Model
from localspec.runtime.parts import ModelParts
from localspec.runtime.ready_drafter import Drafting
from localspec.runtime.slots import Slots

SEED = 0
AGREEMENT, LENGTH = 0.8, 4
QUESTION = "go"
TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "ta", "ve", "wi", "zo", "ka", "ly")
PARAGRAPH = 24  # words, as many as a short paragraph has


def open_forced(request: LoadRequest) -> Generator[Loading | Ready, None, Slots]:
    """`model` names a shape, `ctx` says how many tokens an answer has: it goes on until the context is full."""
    from localspec.engine.cpu.decoder import PackedDecoder

    shape, length = SHAPES[request.model], request.weights.ctx or 512
    threads = request.weights.threads or processor.physical_cores()
    torch.set_num_threads(1)
    prompter = Prompter(
        words(shape.vocab_size),
        name=request.model,
        template=ChatTemplate(TEMPLATE, name=request.model, special_tokens={}),
    )
    prompt = prompter.chat((Message("user", QUESTION),))
    context = len(prompt) + length
    yield Loading("random weights", 0, 1, "steps")
    kind: ListedFormat = "int4" if request.weights.weight_format == "int4" else "int8"
    source = random_tensors(shape, SEED)
    decoder = make_decoder(shape.arch(context), source, kind, context=context, threads=threads)
    assert isinstance(decoder, PackedDecoder)
    yield Loading("its text", 0, 1, "steps")
    session = Session(decoder, NoDrafter())
    file = paths.state_dir() / f"forced-{request.model}-{kind}-{length}.json"
    said = kept(file) or plain(session, prompt, length)
    file.write_bytes(msgspec.json.encode(said))
    leave = shape.num_layers // 4
    drafter = ForcedAgreement(EarlyExitDrafter(decoder, leave), [*prompt, *said], AGREEMENT)
    drafter.toss(SEED)
    session.drafter = drafter
    spec = SpecCard("early-exit", f"forced agreement {AGREEMENT}", LENGTH, exit_layer=leave)
    greedy = SamplingOptions(temperature=0.0)  # else the chat samples, as models are that name no temperature
    ready = Ready(
        ModelCard(f"{request.model}, random", kind, "cpu", context, chat=True, sampling=greedy.given),
        spec,
        Memory(target_bytes=decoder.weights.num_bytes, drafter_bytes=0, kv_bytes=0),
    )
    yield ready
    model = Model(
        ModelParts(
            ready,
            prompter,
            session,
            decoder,
            Drafting(spec, drafter, SteerablePolicy("on", LENGTH)),
            defaults=greedy,
            stop_ids=frozenset(),
            another=no_other,
            owned=(decoder,),
        )
    )
    return Slots(model)


def no_other(_: ChangeDrafter) -> Generator[Loading | Notice, None, Drafting]:
    raise UsageError("Its agreement is forced: there is no other drafter.")
    yield


def kept(file: Path) -> list[int]:
    """The target's text that another program with the same state folder has saved: it spares half a minute."""
    return msgspec.json.decode(file.read_bytes(), type=list[int]) if file.exists() else []


def plain(session: Session, prompt: list[int], length: int) -> list[int]:
    """The target's text without a drafter."""
    session.begin(Greedy(Sampling(temperature=0.0)))
    for _ in session.prefill(prompt):
        pass
    return [token for done in decode(session, Constant(0), max_tokens=length) for token in done.tokens]


def words(count: int) -> Tokenizer:
    """A tokenizer with a word for every id; every so many end a paragraph."""
    vocab = {word(id): id for id in range(count)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token=word(0)))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def word(id: int) -> str:
    """Four syllables are enough for 65,536."""
    parts = [SYLLABLES[id >> shift & 15] for shift in (0, 4, 8, 12)]
    return "".join(parts) + (".\n\n" if id % PARAGRAPH == 0 else "")
