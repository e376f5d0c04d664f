"""The attack: a chat template is a program from the same stranger as the weights; it reads, writes or fills memory.

Templates ran code in llama-cpp-python (CVE-2024-34359), vLLM and SGLang (CVE-2026-5760), where nothing held them in.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from localspec.core.errors import CheckpointError, LocalspecError, UsageError
from localspec.core.requests import Message
from localspec.models import sandbox
from localspec.models.chat_template import ChatTemplate
from localspec.models.sandbox import Sandbox
from localspec.models.sandbox_jobs import EncodeChat, Ids, OpenPrompter, PrompterOpened, TokenizerText
from tests.support.tokenizers import gpt2_like

pytestmark = pytest.mark.heavy

ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__ }}",
    "{{ raise_exception.__globals__['os'].system('touch canary') }}",
    "{{ strftime_now.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('touch canary').read() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ '{0.__class__}'.format(messages) }}",
    "{{ '%s' | format(messages.__class__) }}{{ ('{0.__class__.__init__.__globals__}' | string).format(messages) }}",
    "{{ messages | attr('__class__') | attr('__base__') }}",
    "{{ messages | map(attribute='__class__') | list }}",
    "{{ ['__class__'] | map('attr', 'x') | list }}{{ messages['__class__'] }}{{ messages | attr('__' ~ 'class__') }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ lipsum.__globals__['os'].system('touch canary') }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os.system('touch canary') }}",
    "{% extends '/etc/passwd' %}",
    "{{ open('/etc/passwd').read() }}",
    "{{ __import__('os').system('touch canary') }}",
    "{{ eval('1') }}",
    "{% set x = namespace() %}{% set x.__class__ = 1 %}{{ x.__class__ }}",
    "{{ dict.__subclasses__() }}{{ dict.mro() }}",
    "{{ (messages | tojson).__class__ }}{{ joiner.__init__.__builtins__ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_reach_out_of_its_sandbox(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = [Message("user", "hello")]
    try:
        text = ChatTemplate(source, name="tiny", special_tokens={}).render(messages)
    except LocalspecError as error:
        text = error.message
    assert not list(tmp_path.iterdir())
    assert messages == [Message("user", "hello")]
    for leak in ("<class", "<module", "<function", "<code", "root:", "'os'", "built-in"):
        assert leak not in text


WIDE = "{% set ns = namespace(x='ab', y=['ab']) %}{% for i in range(60) %}{% set STEP %}{% endfor %}{{ ns.x | length }}"
MEMORY, TIME, ENDLESS = r"needs more than \d+ MB of memory", r"needs more than \d+ seconds", "never ends"
TOO_MUCH = f"{MEMORY}|{TIME}|{ENDLESS}"  # whichever comes first
BOMBS = {  # template: what is said of it
    "{{ 'a' * 10**8 }}": TOO_MUCH,
    "{{ 'a' * 10000000 }}": ENDLESS,
    "{{ 1000000000 * 'a' }}": MEMORY,
    "{{ [0] * 100000000 }}": MEMORY,
    "{{ 'a' * (1000 * 1000 * 1000) }}": MEMORY,
    "{{ 9 ** (9 ** 9) }}": TIME,
    "{{ (2 ** 100000000) % 7 }}{{ 3 ** 100000000 }}": TIME,
    "{% set n = 'a' * 1000000 %}{{ n * 1000000 }}": MEMORY,
    "{% for i in range(1000000000) %}a{% endfor %}": "Range too big",
    "{% for i in range(99999) %}{% for j in range(99999) %}aaaaaaaaaaaaaaaa{% endfor %}{% endfor %}": ENDLESS,
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": TIME,
    "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}": ENDLESS,
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "maximum recursion depth",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}": "maximum recursion depth",
    WIDE.replace("STEP", "ns.x = ns.x + ns.x"): TOO_MUCH,
    WIDE.replace("STEP", "ns.x = ns.x ~ ns.x"): TOO_MUCH,
    WIDE.replace("STEP", "ns.x = [ns.x, ns.x] | join"): TOO_MUCH,
    WIDE.replace("STEP", "ns.x = ns.x.replace('a', 'aa')"): TOO_MUCH,
    WIDE.replace("STEP", "ns.x = ns.x | replace('b', 'bb')"): TOO_MUCH,
    WIDE.replace("STEP", "ns.y = ns.y + ns.y"): TOO_MUCH,
    WIDE.replace("STEP", "ns.x = (ns.x, ns.x) | string"): TOO_MUCH,
    "{% set x %}{% for i in range(99999) %}{% for j in range(99999) %}ab{% endfor %}{% endfor %}{% endset %}": TOO_MUCH,
    "{{ '%3000000000d' % 1 }}": MEMORY,
    "{{ '%.2000000000f' % 1 }}": MEMORY,
    "{{ '%3000000000d' | format(1) }}": MEMORY,
    "{{ '{:3000000000}'.format(1) }}": MEMORY,
    "{{ 'x' | center(3000000000) }}": MEMORY,
    "{{ 'x\n\nx' | indent(1000000000) }}": MEMORY,
    "{{ [1] | batch(3000000000, 0) | list }}": MEMORY,
    "{{ [1] | slice(3000000000, 0) | list }}": TOO_MUCH,
    "{{ 'x'.center(3000000000) }}": MEMORY,
    "{{ 'x'.ljust(3000000000) }}": MEMORY,
    "{{ 'x'.zfill(3000000000) }}": MEMORY,
    "{{ '\t'.expandtabs(2000000000) }}": MEMORY,
    "{{ 'x' | wordwrap(1) }}{{ ('x ' * 20000000) | wordwrap(1) }}": TOO_MUCH,
    "{{ range(99999) | map('string') | join(',' * 99999) | length }}": TOO_MUCH,
    "{{ lipsum(n=100000000) }}": "'lipsum' is undefined",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}": "recursion|nested|memory|stack",
    "{% if x %}" * 3000 + "{% endif %}" * 3000: "recursion|nested|memory|stack|indentation",
    "{{ 1 / 0 }}": "division by zero",
    "{{ messages[99].content }}": "has no element 99",
    "{{ nobody.nothing }}": "'nobody' is undefined",
    "{% for %}": "fails: Expected an expression",
    "{{ 'unfinished": "fails: ",
    "{% unknown_tag %}": "unknown tag 'unknown_tag'",
    "{{ x | no_such_filter }}": "No filter named 'no_such_filter'",
    "{{ strftime_now(1) }}": "must be str",
    "{{ messages | tojson(indent=[]) }}": "fails: ",
    "{{ '\\ud800' | tojson }}{{ raise_exception() }}": "fails: |refuses",
    "": "returns an empty text for this conversation",
    "{{ ''.__class__ }}": "returns an empty text for this conversation",
}


@pytest.fixture(scope="module")
def box() -> Sandbox:
    return Sandbox()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:40])
def test_a_template_that_fails_or_swells_ends_in_one_sentence(
    source: str, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its limits, of which that of time is made shorter here."""
    monkeypatch.setattr(sandbox, "SECONDS", 0.4)
    with pytest.raises((CheckpointError, UsageError), match=BOMBS[source]) as caught:
        answer(box, source)
    assert "chat template of 'tiny'" in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.message.endswith(".") or isinstance(caught.value, UsageError)


def answer(box: Sandbox, source: str) -> Ids:
    tokenizer = TokenizerText(gpt2_like().to_str(), "tokenizer.json")
    box.ask(OpenPrompter(tokenizer, "tiny", source, {}), PrompterOpened)
    return box.ask(EncodeChat((Message("user", "hello"),), None), Ids)


PEAK = """
import resource
from localspec.core.errors import CheckpointError
from tests.attacks.test_hostile_templates import *
box = Sandbox()
for source in [source for source in BOMBS if "set ns" in source][: int(sys.argv[1])]:
    with pytest.raises(CheckpointError):
        answer(box, source)
box.close()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.parametrize("bombs", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_the_sandbox_never_takes_a_gigabyte(bombs: int) -> None:
    """As users have it, in a process whose children are sandboxes alone: what the largest of them held at its peak, in
    kilobytes."""
    words = [sys.executable, "-c", PEAK, str(bombs)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert 50 << 10 < int(printed) < 600 << 10
