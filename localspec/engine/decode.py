"""The page to read first: speculative decoding, one round and the loop. Tokens in, tokens out.

Plain decoding is the same loop with an empty draft. Knows no text, no options, no statistics.
Leviathan et al., arXiv 2211.17192, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter

import torch

from localspec.engine.drafters.empty import empty
from localspec.engine.protocols import Policy, Round
from localspec.engine.sampling import finite
from localspec.engine.session import Session


def speculative_round(session: Session, policy: Policy, most: int) -> Round:
    """Drafts at most `most` tokens, verifies them in one forward, keeps the longest prefix that the target agrees with,
    adds one token of its own."""
    started = perf_counter()
    try:
        choice = policy.choose(most, partial(session.drafter.offers, session, most))
        draft = session.drafter.draft(session, choice) if choice.k else empty(session)
        drafted = perf_counter()
        session.check_cancel()
        rows = torch.cat((session.pending, draft.tokens.to(session.device))) if draft else session.pending
        logits = session.target.forward(rows, draft.exit_states)  # [k + 1, vocab]
        accepted, token = session.sampler.accept(finite(logits), draft, session)
        proposed = tuple(draft.tokens.tolist())
        tokens = (*proposed[:accepted], token)
        session.commit(tokens)
    finally:
        session.roll_back()  # what was not committed; a cancel is no special case
    ended = perf_counter()
    return Round(tokens, proposed, accepted, drafted - started, ended - drafted, drafters=draft.drafters, choice=choice)


def decode(session: Session, policy: Policy, *, max_tokens: int) -> Iterator[Round]:
    """Yields rounds until a stop id, `max_tokens` or the end of the context; the last one says which."""
    left = max_tokens
    while left > 0:
        most = min(left, session.tokens_left) - 1
        done = check_end(speculative_round(session, policy, most), session, left)
        left -= len(done.tokens)
        policy.observe(done)
        yield done
        if done.ended:
            return


def check_end(done: Round, session: Session, left: int) -> Round:
    """The round, with the reason if the generation ends here; after a stop id it is cut, and the session rewound."""
    for index, token in enumerate(done.tokens):
        if token in session.stop_ids:
            return replace(cut(done, session, index + 1), ended="stop")
    if len(done.tokens) == left:
        return replace(done, ended="length")
    return replace(done, ended="context") if session.tokens_left == 0 else done


def cut(done: Round, session: Session, length: int) -> Round:
    """The round as if it had only its first `length` tokens; drafts beyond them were never tested."""
    if length == len(done.tokens):
        return done
    session.rewind(len(session.tokens) - len(done.tokens) + length)
    accepted = min(done.accepted, length)
    return replace(done, tokens=done.tokens[:length], accepted=accepted, ignored=done.drafted - accepted)
