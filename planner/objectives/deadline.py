"""Deadlines by arithmetic, and the answer where no number of devices reaches one."""

import math
from dataclasses import replace

from cost_models.specs.trainable import ALL
from planner.answers import PlanResult, Prediction, Relaxation
from planner.objectives.asking import Asking
from planner.objectives.goodput import DAY_S
from planner.objectives.proof import Proof, with_proof
from planner.situation import Situation

SLACK = 1e-6
"""Of a node; less is no reason for another one."""


def fewest_seconds(situation: Situation) -> float:
    """A step that nothing beats: the model's FLOPs at the devices' peaks (half of them where parts are frozen, whose
    backward pass may be left out)."""
    cluster, precision = situation.cluster, situation.job.precision.value
    peaks = [
        group.num_devices * cluster.device_of(index).peak(precision)
        for index, group in enumerate(cluster.groups)
    ]
    share = 1.0 if situation.job.trainable == ALL else 0.5
    return share * situation.model_flops / sum(peaks)


def none_fast_enough(asking: Asking, proof: Proof) -> PlanResult:
    """No declared number of devices has a plan that is fast enough: the fastest on all devices says by how much."""
    result = asking.as_asked()
    best = result.best
    answer = with_proof(replace(result, best=None, alternatives=()), proof, asking, {})
    is_open = any(point.outcome == "open" for point in proof.points)
    if best is None:
        return replace(answer, status="unknown" if is_open else "infeasible")
    reason, changes = _shortfall(asking, best)
    return replace(answer, status="unknown" if is_open else "infeasible", reason=reason, relaxations=changes)


def _shortfall(asking: Asking, best: Prediction) -> tuple[str, tuple[Relaxation, ...]]:
    """By how much the fastest plan misses the deadline or the rate, and the nearest ones that it reaches."""
    terms = asking.terms(asking.situation)
    request, devices = asking.search.run, terms.devices
    fastest = f"the fastest on all of them takes {best.step_s:.4g} s a step"
    reason = f"no plan on up to {devices:,} devices is fast enough: {fastest}"
    changes: list[Relaxation] = []
    if request.deadline_s is not None and terms.steps is not None:
        days, asked = terms.wall_s(best.step_s) / DAY_S, request.deadline_s / DAY_S
        reason += f", {days:.4g} days for {terms.steps:,} steps where {asked:.4g} were asked for"
        changes.append(
            Relaxation(
                f"deadline={math.ceil(days * 100) / 100:.2f}d", "what the fastest plan reaches", best.step_s
            )
        )
        node = asking.situation.cluster.groups[0].devices_per_node
        more = math.ceil(devices * days / asked / node - SLACK) * node
        changes.append(
            Relaxation(
                f"devices={more}", f"at least; {days / asked:.3g} times as many if nothing is lost by scaling"
            )
        )
    if request.min_tokens_per_s is not None:
        rate = terms.units_per_step / best.step_s
        reason += f", {rate:,.0f} {terms.unit}/s where {request.min_tokens_per_s:,.0f} were asked for"
        changes.append(
            Relaxation(f"min_tokens_per_s={rate:.0f}", "what the fastest plan reaches", best.step_s)
        )
    return reason, tuple(changes)
