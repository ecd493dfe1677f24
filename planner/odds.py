"""How sure it is that one layout is faster than another, from draws of the step time that share their errors.

Two layouts of one model on one cluster share most of what may be wrong about them (the device's efficiency, the
network's), so their predictions err together; the draws of planner.intervals carry that.
"""

import numpy as np

from planner.answers import Prediction
from planner.intervals import step_draws
from planner.situation import Situation


def probability_faster(first: tuple[Prediction, Situation], second: tuple[Prediction, Situation]) -> float:
    """P(the first's step is shorter than the second's): share of draws in which it is, ties counted half."""
    ours, theirs = (
        np.asarray(step_draws(prediction, situation)) for prediction, situation in (first, second)
    )
    return float(np.mean(ours < theirs) + 0.5 * np.mean(ours == theirs))
