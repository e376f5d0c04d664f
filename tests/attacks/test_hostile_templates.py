"""The attack: a chat template is a program from the same stranger as the weights; it reads, writes or fills memory.

Templates ran code in llama-cpp-python (CVE-2024-34359), vLLM and SGLang (CVE-2026-5760), where nothing held them in.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from localspec.errors import CheckpointError, LocalspecError, UsageError
from localspec.requests import Message
from localspec.template import ChatTemplate

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


BOMBS = [
    "{{ 'a' * 10**8 }}",
    "{{ 'a' * 100000000 }}",
    "{{ 100000000 * 'a' }}",
    "{{ [0] * 100000000 }}",
    "{{ 'a' * (1000 * 1000 * 1000) }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 2 ** 100000000 }}",
    "{% set n = 'a' * 1000000 %}{{ n * 1000000 }}",
    "{% for i in range(1000000000) %}a{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}aaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{{ lipsum(n=100000000) }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if x %}" * 3000 + "{% endif %}" * 3000,
    "{{ 1 / 0 }}",
    "{{ messages[99].content }}",
    "{{ nobody.nothing }}",
    "{% for %}",
    "{{ 'unfinished",
    "{% unknown_tag %}",
    "{{ x | no_such_filter }}",
    "{{ strftime_now(1) }}",
    "{{ messages | tojson(indent=[]) }}",
    "{{ '\\ud800' | tojson }}{{ raise_exception() }}",
]


@pytest.mark.parametrize("source", BOMBS, ids=lambda source: source[:40])
def test_a_template_that_fails_or_swells_ends_in_one_sentence(source: str) -> None:
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((CheckpointError, UsageError)) as caught:
        ChatTemplate(source, name="tiny", special_tokens={}).render([Message("user", "hello")])
    assert time.perf_counter() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert "chat template of 'tiny'" in caught.value.message
    assert len(caught.value.message) < 500
