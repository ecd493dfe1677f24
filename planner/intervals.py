"""How far off a step time may be: a 90 % interval, and draws whose errors layouts of one situation share.

How far depends on what fitted runs say of the same kind of model, device and software: narrow near them, wide where a
constant had to be taken from others. Two layouts of one model on one cluster err together: what the device or the
software does better than assumed, it does in both. So a draw of log(measured / predicted) has a part common to all
layouts, a part of each kind of communication weighed by what of it shows, and a part of the layout's own. Sizes are
fitted to the errors of published runs (profiles/calibration/uncertainty.toml, docs/accuracy.md).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.specs.model import ModelSpec
from planner.answers import BREAKDOWN_CAUSES, Prediction
from planner.situation import Situation

Array = NDArray[np.float64]

DRAWS: Final = 256
NORMAL_95: Final = 1.6448536269514722
SEED: Final = 20_261_201
COMMUNICATION: Final = tuple(cause for cause in BREAKDOWN_CAUSES if cause.endswith("_communication"))


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of log(measured / predicted): of all layouts of a situation together, of a layout of its own,
    and of each second of communication that shows."""

    common: float
    own: float
    communication: float

    def total(self, breakdown_s: Mapping[str, float], step_s: float) -> float:
        """Of one prediction."""
        shown = [self.communication * share for share in shares(breakdown_s, step_s)]
        return math.hypot(self.common, self.own, *shown)


def spread_of(situation: Situation) -> Spread:
    """The spread of a situation's predictions: what fitted runs know of its kind of model, device and software, and its
    size. A device with a profile of its own needs no constants."""
    found = situation.uncertainty
    support = found.kinds[kind_of(situation.model)]
    cluster = situation.cluster
    known = support.of(cluster.device, situation.generation.name)
    if situation.efficiency.measured is not None:
        known = support.noise
    doublings = max(math.log2(cluster.num_devices / support.largest_of(situation.generation.name)), 0.0)
    own = min(found.own * support.noise, known)
    common = math.hypot(math.sqrt(known**2 - own**2), found.doubling * doublings)
    return Spread(common, own, support.communication)


def kind_of(model: ModelSpec) -> str:
    """dense, moe or vision: models whose steps are known equally well."""
    if model.is_vision:
        return "vision"
    return "moe" if model.is_moe else "dense"


def step_interval(
    step_s: float, breakdown_s: Mapping[str, float], situation: Situation
) -> tuple[float, float]:
    """The 90 % interval of a step time, symmetric in the logarithm."""
    factor = math.exp(NORMAL_95 * spread_of(situation).total(breakdown_s, step_s))
    return step_s / factor, step_s * factor


def shares(breakdown_s: Mapping[str, float], step_s: float) -> tuple[float, ...]:
    """Share of the step of each kind of communication that shows."""
    return tuple(breakdown_s.get(cause, 0.0) / step_s for cause in COMMUNICATION)


def step_draws(prediction: Prediction, situation: Situation) -> tuple[float, ...]:
    """Seconds of `DRAWS` equally likely steps.

    Draw i of every layout of a situation shares the common factor and the factor of each kind of communication, so the
    share of i with a_i < b_i is the probability that a is faster than b.
    """
    spread = spread_of(situation)
    common, kinds = _shared()
    logs = spread.common * common + spread.own * _own(prediction.strategy.text())
    for share, kind in zip(shares(prediction.breakdown_s, prediction.step_s), kinds, strict=True):
        logs = logs + spread.communication * share * kind
    return tuple(float(seconds) for seconds in prediction.step_s * np.exp(logs))


@lru_cache(maxsize=1)
def _shared() -> tuple[Array, Array]:
    """Standard normals of every draw: (DRAWS,) common ones and (kinds, DRAWS) of each kind of communication."""
    generator = np.random.Generator(np.random.PCG64(SEED))
    return generator.standard_normal(DRAWS), generator.standard_normal((len(COMMUNICATION), DRAWS))


@lru_cache(maxsize=4096)
def _own(layout: str) -> Array:
    """Standard normals (DRAWS,) of one layout, the same in every process."""
    seed = int.from_bytes(blake2b(layout.encode(), digest_size=8).digest(), "big")
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(DRAWS)
