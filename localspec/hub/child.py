"""The hub's process: `python -m localspec.hub.child SECONDS` answers questions, lines of JSON, until stdin closes.

The only process that imports huggingface_hub. What libraries print goes to hub.log; the answers' descriptor is private.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import closing
from queue import SimpleQueue

import msgspec

from localspec.core import paths
from localspec.core.errors import LocalspecError
from localspec.core.events import Failure
from localspec.hub.faults import error_for
from localspec.hub.records import PAUSES, AnyAsk, AskFit, AskPull, Go, HubAnswer
from localspec.runtime.failures import log_file
from localspec.runtime.worker import quieten

QUESTIONS = msgspec.json.Decoder(AnyAsk)
SILENT = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}


class Child:
    """`silence`: seconds without a byte after which a download ends. One question at a time."""

    def __init__(self, answers: int, questions: int, silence: float) -> None:
        self._answers, self._questions, self._silence = answers, questions, silence
        self._asked: SimpleQueue[AnyAsk] = SimpleQueue()

    def run(self) -> None:
        """Answers until the parent is gone."""
        threading.Thread(target=self._listen, daemon=True).start()
        question = self._asked.get()
        while True:
            question = self._answered(question) or self._asked.get()

    def _listen(self) -> None:
        """Takes questions while others are answered, and ends the process with its parent, whatever it is doing: a
        download's parts are on the disk as far as they came."""
        with open(self._questions, "rb") as lines:
            for line in lines:
                self._asked.put(QUESTIONS.decode(line))
        os._exit(0)

    def _answered(self, question: AnyAsk) -> AnyAsk | None:
        """Answers one question; a plan waits for Go, and any other question that comes instead is returned."""
        try:
            from localspec.hub.answers import answers_to  # late: what the library prints at its import goes to the log

            with closing(answers_to(question, self._silence, self._send)) as answers:
                for answer in answers:
                    self._send(answer)
                    if isinstance(answer, PAUSES) and not isinstance(following := self._asked.get(), Go):
                        return following
        except LocalspecError as fault:
            self._send(Failure(fault.code, fault.message, fault.hint, fault.exit_code))
        except Exception as foreign:
            traceback.print_exception(foreign)
            ours = error_for(foreign, subject(question))
            self._send(Failure(ours.code, ours.message, ours.hint, ours.exit_code))
        return None

    def _send(self, answer: HubAnswer) -> None:
        """Writes one line, whole; a parent that is gone ends the process."""
        rest = memoryview(msgspec.json.encode(answer) + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._answers, rest) :]
        except BrokenPipeError:
            os._exit(0)


def subject(question: AnyAsk) -> str:
    """What a question is about, for a sentence about an error that was not expected."""
    match question:
        case AskPull(request) | AskFit(request):
            return request.repo
        case _:
            return "the request"


def main() -> None:
    """Keeps the pipe's two ends for the answers and questions alone, and redirects the rest to the log."""
    os.environ.update(SILENT)
    answers, questions = os.dup(1), os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    quieten(log_file(paths.hub_log))
    Child(answers, questions, float(sys.argv[1])).run()


if __name__ == "__main__":
    main()
