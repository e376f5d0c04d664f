"""Where a phase of the compiled forward ends: every thread waits for all. Knows nothing of what they computed."""

from __future__ import annotations

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.lang import breathe, claim, compiled, int_at, look, nap, tell

# On a quiet machine nobody waits for longer. Where other programs want the cores, a thread that spins on or yields has
# had its share, and is made to wait while the others wait for it, barrier for barrier; one that sleeps has a claim.
SPINS_TO_NAP = 2000


@compiled
def barrier(sync: int) -> None:
    """Wait until every thread is here; the tasks of the next phase count from 0."""
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
