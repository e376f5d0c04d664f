"""The barrier between phases of the compiled forward. Knows nothing about what the threads compute."""

from __future__ import annotations

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.lang import breathe, claim, compiled, int_at, look, nap, tell

# On a quiet machine no thread waits longer. Where other programs want the cores, the scheduler deprioritises a thread
# that spins or yields, and the others wait for it at every barrier; one that sleeps keeps its priority.
SPINS_TO_NAP = 2000


@compiled
def barrier(sync: int) -> None:
    """Waits until every thread is here; the tasks of the next phase count from 0."""
    threads = int_at(sync + at.THREADS)
    if threads == 1:
        tell(sync + at.NEXT, 0)
        return
    generation = look(sync + at.GENERATION)
    if claim(sync + at.ARRIVED, 1) == threads - 1:
        tell(sync + at.ARRIVED, 0)
        tell(sync + at.NEXT, 0)
        tell(sync + at.GENERATION, generation + 1)
        return
    spins = 0
    while look(sync + at.GENERATION) == generation:
        breathe(0)
        spins += 1
        if spins > SPINS_TO_NAP:
            nap(int_at(sync + at.NAP), int_at(sync + at.NAP_TIME))
