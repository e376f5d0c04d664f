"""X: whatever a drafter proposes, or however it fails, the text is plain's, in every decoder and format; and a fuzz of all
that may happen to a session while drafters are changed under it.

Counters: of every drafter, drafted = accepted + rejected + ignored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from localspec.core.errors import Cancelled
from localspec.engine.decode import decode, speculative_round
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.drafters.empty import NoDrafter
from localspec.engine.drafters.guarded import Guarded
from localspec.engine.drafters.lookup import LookupDrafter, Text
from localspec.engine.drafters.mixed import Mixed
from localspec.engine.policy import Constant, Policy
from localspec.engine.protocols import PLAIN, Choice, Draft, Drafter, Offer, Round
from localspec.engine.samplers import make_sampler
from localspec.engine.sampling import Sampling
from localspec.engine.session import Session
from tests.support.fakes import Alarm, ScriptedModel, generate, plain, scripted_draft_model, text
from tests.support.generic_models import generic_decoder
from tests.support.models import TINY, tiny_decoder
from tests.support.packed_models import packed_decoder

VOCAB, STOP = 40, 7
PROMPT = [3, 14, 15, 9, 2, 6, 5, 14, 15, 9]
SAMPLED = Sampling(temperature=1.3, seed=5)
