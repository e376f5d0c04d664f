"""The process of the sandbox: runs a model's tokenizer and chat template, each job within its limits.

Reads orders from stdin, writes answers to stdout, and ends with them. The output of libraries is discarded.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from localspec.core.errors import LocalspecError
from localspec.core.limits import entering, limited, note_in
from localspec.core.main_memory import trim
from localspec.models.chat_template import ChatTemplate
from localspec.models.checkpoint import check_ids, parse_tokenizer
from localspec.models.pairing import compare
from localspec.models.prompt import Prompter
from localspec.models.sandbox_jobs import (
    CheckTemplate,
    ComparePair,
    EncodeAnswer,
    EncodeChat,
    EncodePart,
    EncodeText,
    Ids,
    Job,
    JobAnswer,
    JobDone,
    OpenPrompter,
    Order,
    PrompterOpened,
    Refused,
    TooLarge,
    UseTemplate,
    receive,
    send,
)

ORDERS = msgspec.msgpack.Decoder(Order)
ENCODE = msgspec.msgpack.Encoder().encode


def main(note: int) -> None:
    """Runs jobs until stdin is closed. `note`: the open file that names the part of the model's folder that runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the parent process
    answers, nowhere = os.fdopen(os.dup(1), "wb"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    if note >= 0:
        note_in(note)
    worker = Worker()
    while raw := receive(sys.stdin.buffer):
        send(answers, ENCODE(worker.run(ORDERS.decode(raw))))


class Worker:
    """Runs jobs with one model's prompter, once it is open."""

    def __init__(self) -> None:
        self._prompter: Prompter | None = None

    def run(self, order: Order) -> JobAnswer:
        try:
            with limited(order.seconds, order.num_bytes):
                return self._do(order.job)
        except MemoryError:
            return TooLarge()
        except LocalspecError as fault:
            return Refused(fault.code, fault.message, fault.hint)

    def _do(self, job: Job) -> JobAnswer:
        match job:
            case CheckTemplate():
                ChatTemplate(job.source, name=job.name, special_tokens={})
                return JobDone()
            case ComparePair():
                entering("tokenizer")
                return compare(job.target, job.drafter)
            case OpenPrompter():
                self._prompter = opened(job)
                trim()
                return card(self._prompter)
        assert self._prompter is not None
        match job:
            case UseTemplate():
                return card(self._prompter.using(job.template))
            case EncodeChat():
                return Ids(self._prompter.using(job.template).chat(job.messages))
            case EncodeAnswer():
                return Ids(self._prompter.using(job.template).words(job.before, job.text))
            case EncodePart():
                return Ids(self._prompter.running(job.text))
            case EncodeText():
                return Ids(self._prompter.text(job.text))


def opened(job: OpenPrompter) -> Prompter:
    entering("tokenizer")
    tokenizer = parse_tokenizer(job.tokenizer.text, job.tokenizer.where)
    check_ids(job.tokenizer.where, tokenizer, job.tokenizer.rows)
    specials, template = job.special_tokens, None
    if job.template is not None:
        template = ChatTemplate(job.template, name=job.name, special_tokens=specials)
    return Prompter(tokenizer, name=job.name, template=template, special_tokens=specials, rows=job.tokenizer.rows)


def card(prompter: Prompter) -> PrompterOpened:
    return PrompterOpened(prompter.control_ids, prompter.num_ids, prompter.can_chat)
