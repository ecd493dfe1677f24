"""What remains visible of communication beside computation, and what the slowest of many ranks costs.

Primitives only: which message may hide behind what is an engine's business. Hiding is never free.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.units import Num

Array = NDArray[np.float64]

BLOM_SHIFT: Final = 0.375
"""Blom 1958: the expected largest of N standard normals is close to the quantile (N - 3/8) / (N + 1/4)."""

# Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.23: the normal quantile to 4.5e-4.
_NUMERATOR: Final = (2.515517, 0.802853, 0.010328)
_DENOMINATOR: Final = (1.0, 1.432788, 0.189269, 0.001308)


def exposed(comm_s: Num, window_s: Num, *, efficiency: Num, interference: Num) -> Array:
    """Seconds that communication adds to computation of `window_s` which it may run beside.

    hidden = min(comm, efficiency * window); added = comm - hidden + interference * hidden.
    `efficiency` in [0, 1] is the share of the window that the engine can really use; `interference` in
    [0, 1] the slowdown of the computation for each hidden second, as it lends the network compute units and
    memory bandwidth (after the overlap coefficients of Galvatron and Mist). Grows with comm, falls with the
    window, never below interference * comm. Limit: one stream of communication beside one of computation.
    """
    comm = np.asarray(comm_s, dtype=float)
    hidden = np.minimum(comm, efficiency * np.asarray(window_s, dtype=float))
    added: Array = comm - (1.0 - np.asarray(interference, dtype=float)) * hidden
    return added


def expected_maximum_factor(num_ranks: Num, noise: Num) -> Array:
    """Expected time of the slowest of `num_ranks` equal ranks over the mean of one rank.

    1 + noise * z((N - 3/8) / (N + 1/4)) with z the normal quantile and `noise` the standard deviation of a
    rank's time over its mean; z of N independent normals is met to 5 % at N = 2 and to 1 % from N = 10 on.
    Exactly 1 for one rank. Limit: ranks are independent; a permanently slow node is no such straggler.
    """
    ranks = np.maximum(np.asarray(num_ranks, dtype=float), 1.0)
    tail = (1.0 - BLOM_SHIFT) / (ranks + 1.0 - 2.0 * BLOM_SHIFT)
    factor: Array = np.where(ranks > 1.0, 1.0 + np.asarray(noise, dtype=float) * _upper_quantile(tail), 1.0)
    return factor


def _upper_quantile(tail: Array) -> Array:
    """The z with P(normal > z) = tail, for tail in (0, 0.5]."""
    t = np.sqrt(-2.0 * np.log(tail))
    upper = _NUMERATOR[0] + t * (_NUMERATOR[1] + t * _NUMERATOR[2])
    lower = _DENOMINATOR[0] + t * (_DENOMINATOR[1] + t * (_DENOMINATOR[2] + t * _DENOMINATOR[3]))
    found: Array = np.maximum(t - upper / lower, 0.0)
    return found
