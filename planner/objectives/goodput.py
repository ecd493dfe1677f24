"""Useful time over wall time under failures, and how often to save.

Failures of a run come as a Poisson process with mean time between failures M = mtbf of a device / devices. A run works
tau seconds, saves for delta seconds, and after a failure pays R seconds before it repeats the work since the last save.

    wall / useful = (M / tau) e^(R / M) (e^((tau + delta) / M) - 1)

(Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006) 303-312, the
complete cost function.) Setting its derivative in tau to zero gives, with x = tau / M,

    (1 - x) e^x = e^(-delta / M)

whose first-order solution is Young's tau = sqrt(2 delta M) (CACM 17 (1974) 530-531); Daly's perturbation solution is
`daly_interval_s`. The equation itself is solved here.
"""

import math
from dataclasses import dataclass

from planner.request import RunRequest

HOUR_S = 3600.0
DAY_S = 86_400.0
_MAX_EXPONENT = 700.0
_BISECTIONS = 80


@dataclass(frozen=True, slots=True)
class Goodput:
    """Useful time over wall time (`share`), and what it was computed from; seconds and bytes."""

    share: float
    mtbf_s: float
    checkpoint_bytes: float
    checkpoint_s: float
    interval_s: float
    restart_s: float

    def to_json(self) -> dict[str, object]:
        """The `goodput` object of a run."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "failures_per_day": DAY_S / self.mtbf_s
        }


def expected_goodput(run: RunRequest, devices: int, state_bytes: float) -> Goodput:
    """Goodput of a run on so many devices whose checkpoint holds `state_bytes`.

    All devices write at once, each at its share of the storage's rate; a restart reads the checkpoint at the same rate.
    """
    mtbf_s = run.mtbf_device_hours * HOUR_S / devices
    transfer_s = state_bytes / (run.checkpoint_bytes_per_s_per_device * devices)
    save_s = transfer_s if run.checkpoint_s is None else float(run.checkpoint_s)
    restart_s = run.restart_s + transfer_s
    interval_s = float(run.checkpoint_interval_s or optimal_interval_s(save_s, mtbf_s))
    share = useful_share(interval_s, save_s, restart_s, mtbf_s)
    return Goodput(share, mtbf_s, state_bytes, save_s, interval_s, restart_s)


def useful_share(interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Useful share: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)); 1 where nothing is saved and nothing fails."""
    exponent = (interval_s + save_s) / mtbf_s
    if exponent + restart_s / mtbf_s > _MAX_EXPONENT:
        return 0.0
    if exponent == 0.0:
        return math.exp(-restart_s / mtbf_s)
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1(exponent))


def optimal_interval_s(save_s: float, mtbf_s: float) -> float:
    """The work between two saves that makes `useful_share` largest: the root of (1 - x) e^x = e^(-delta/M)."""
    # -log1p(-x) - x rises from 0 to infinity on [0, 1); its value must be delta / M.
    wanted = save_s / mtbf_s
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if middle < 1.0 and -math.log1p(-middle) - middle < wanted:
            low = middle
        else:
            high = middle
    return high * mtbf_s if save_s > 0.0 else 0.0


def young_interval_s(save_s: float, mtbf_s: float) -> float:
    """Young's first-order interval, sqrt(2 delta M)."""
    return math.sqrt(2.0 * save_s * mtbf_s)


def daly_interval_s(save_s: float, mtbf_s: float) -> float:
    """Daly's solution: sqrt(2 delta M) (1 + sqrt(xi)/3 + xi/9) - delta with xi = delta / 2M; M where delta > 2M."""
    ratio = save_s / (2.0 * mtbf_s)
    if ratio >= 1.0:
        return mtbf_s
    return young_interval_s(save_s, mtbf_s) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - save_s
