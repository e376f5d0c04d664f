"""Requests that no honest client sends: one of each kind first, then at random, the same for one seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.support.hostile import bodies, framing, paths, senders
from tests.support.hostile.request import Attack, Build

CHEAP: list[Build] = [
    framing.broken,
    framing.noise,
    framing.cut,
    framing.changed_bytes,
    framing.bad_length,
    framing.two_lengths,
    framing.smuggled,
    framing.bad_chunks,
    framing.upgrade,
    senders.wrong_host,
    senders.absolute_target,
    senders.two_hosts,
    senders.no_host,
    senders.forwarded,
    senders.foreign_origin,
    senders.wrong_type,
    senders.form,
    paths.strange_path,
    paths.asked_by_get,
    paths.other_method,
    paths.write_elsewhere,
    bodies.announced_giant,
    bodies.not_json,
    bodies.wrong_field,
    bodies.wrong_field,
    bodies.wrong_field,
    bodies.strange_text,
]
COSTLY: list[Build] = [
    framing.long_head,
    framing.many_headers,
    bodies.giant,
    bodies.giant_in_chunks,
    bodies.tiny_chunks,
]
BUILDS = [*CHEAP, *COSTLY]


def attacks(count: int, seed: int) -> Iterator[Attack]:
    random = Random(seed)
    builds = [*BUILDS]
    random.shuffle(builds)
    for number in range(count):
        if number < len(builds):
            yield builds[number](random)
        else:
            yield random.choice(COSTLY if random.random() < 0.02 else CHEAP)(random)
