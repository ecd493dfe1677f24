"""Plan again on other devices, after a node was lost: the same global batch, and a checkpoint that still loads.

With the same global batch the schedule of learning rates and the order of samples go on where they were. What must stay
equal between the two layouts depends on how the framework writes its checkpoint; `CHECKPOINTS` says so by engine.
Where the devices left divide badly, leaving some of them out may be faster, so smaller whole numbers of nodes are
tried too.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from cost_models.errors import BadInput
from cost_models.specs.strategy import Strategy
from cost_models.units import format_seconds
from planner.answers import PlanResult, Prediction
from planner.evaluation import evaluate, evaluate_many
from planner.explain.differences import Difference, difference
from planner.explain.facts import vocabulary_rows
from planner.explain.restated import restated
from planner.make_plan import Report, make_plan
from planner.request import SearchRequest
from planner.situation import Situation, changed

Loading = Literal["any", "same"]

SHAPE_KEYS: Final = ("tp", "pp", "vpp", "ep", "etp")
"""Knobs that decide which tensors and parts of them a rank holds."""
FEWER_NODES: Final = 2
"""So many smaller numbers of nodes are tried beside the one given, and the largest power of two."""

CHECKPOINTS: Final[Mapping[str, str]] = {
    "megatron": "torch_dist with --dist-ckpt-optim-fully-reshardable loads under any tp, pp, ep and dp; without the "
    "flag only dp may change (megatron/core/dist_checkpointing)",
    "torch": "torch.distributed.checkpoint loads under any degrees",
    "fsdp2": "torch.distributed.checkpoint loads under any degrees",
    "torchtitan": "torch.distributed.checkpoint loads under any degrees; names of parameters do not depend on pp",
    "fsdp1": "a sharded state dict of torch.distributed.checkpoint loads on any number of ranks",
    "deepspeed": "loads on equal degrees only; ds_to_universal.py converts it for others (universal checkpoint)",
    "ddp": "every rank holds everything: loads on any number of ranks",
    "parameter_server": "the server holds everything: loads on any number of workers",
}


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan after another: what it came from, the devices it uses, what the checkpoint needs."""

    result: PlanResult
    situation: Situation
    before: Prediction
    devices: tuple[int, int, int]  # before, given, used
    loading: Loading
    difference: Difference | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """`replan` beside the plan's own object."""
        before, given, used = self.devices
        return {
            "devices_before": before,
            "devices_given": given,
            "devices_used": used,
            "global_batch": self.situation.job.global_batch,
            "checkpoint": {
                "loading": self.loading,
                "engine": CHECKPOINTS.get(self.situation.engine.name, ""),
                "reshards": self.resharded(),
                "notes": list(self.notes),
            },
            "difference": self.difference.to_json() if self.difference else None,
            "sentence": self.sentence(),
        }

    def resharded(self) -> list[str]:
        """Knobs of which the checkpoint must be cut anew."""
        keys = (*SHAPE_KEYS, "stages", "dp", "zero")
        return [key for key in keys if self.difference is not None and key in self.difference.knobs]

    def sentence(self) -> str:
        """What becomes of the step, and on how many devices."""
        before, given, used = self.devices
        best = self.result.best
        if best is None:
            return f"no plan on {given:,} devices keeps global batch {self.situation.job.global_batch:,}"
        share = best.step_s * used / (self.before.step_s * before) - 1.0
        spare = f" of {given:,} ({given - used:,} left out)" if used < given else ""
        return (
            f"{used:,} devices{spare} instead of {before:,}: {format_seconds(best.step_s)} instead of "
            f"{format_seconds(self.before.step_s)} a step, {abs(share):.1%} {'more' if share >= 0 else 'less'} "
            f"device time; global batch stays {self.situation.job.global_batch:,}"
        )


def replan(
    old: tuple[Situation, Strategy],
    situation: Situation,
    search: SearchRequest,
    loading: Loading,
    report: Report | None,
) -> Replan:
    """Plan `situation` after the old plan was running; raises BadInput where the global batch is another."""
    before, strategy = old
    if before.job.global_batch != situation.job.global_batch:
        raise BadInput(
            f"global batch {situation.job.global_batch} is not the plan's {before.job.global_batch}; leave it out, "
            "planning again keeps it",
            pointer="/job/global_batch",
        )
    pinned = search
    if loading == "same":
        pins = {key: getattr(strategy, key) for key in SHAPE_KEYS}
        pinned = search.model_copy(update={"pins": {**search.pins, **pins}})
    used, result = _best_count(situation, pinned, report)
    was = evaluate(before, strategy)
    if loading == "same":
        result = _with_stages(used, result, strategy, search.gap)
    best = result.best
    return Replan(
        result,
        used,
        was,
        (before.cluster.num_devices, situation.cluster.num_devices, used.cluster.num_devices),
        loading,
        difference(was, best) if best else None,
        tuple(_notes(before, was, best)),
    )


def _with_stages(situation: Situation, result: PlanResult, old: Strategy, gap: float) -> PlanResult:
    """The plan with the old cut of layers into stages, where that fits; with its own cut otherwise."""
    best, certificate = result.best, result.certificate
    if best is None or best.strategy.stages == old.stages:
        return result
    stages = "+".join(map(str, old.stages))
    (kept,) = evaluate_many(situation, [restated(best.strategy, {"stages": stages})])
    if not isinstance(kept, Prediction) or kept.verdict != best.verdict:
        return result
    bound = certificate.lower_bound_s
    distance = None if bound is None else (kept.step_s - bound) / kept.step_s
    proved = distance is not None and distance <= gap
    certificate = replace(certificate, gap=distance)
    return replace(result, status="optimal" if proved else "feasible", best=kept, certificate=certificate)


def _best_count(
    situation: Situation, search: SearchRequest, report: Report | None
) -> tuple[Situation, PlanResult]:
    """The plan with the least step on the devices given or on fewer of them; all within the time of the search."""
    started = time.monotonic()
    first = situation, make_plan(situation, search, report)
    tried = [first]
    counts = list(_smaller_counts(situation))
    for index, devices in enumerate(counts):
        left = float(search.max_seconds) - (time.monotonic() - started)
        if left <= 0.0:
            break
        try:
            fewer = changed(situation, {"devices": devices})
        except BadInput:
            continue
        limited = search.model_copy(update={"max_seconds": left / (len(counts) - index), "explain": False})
        tried.append((fewer, make_plan(fewer, limited, report)))
    planned = [(of, result) for of, result in tried if result.best is not None]
    return min(planned, key=lambda each: each[1].best.step_s if each[1].best else 0.0, default=first)


def _smaller_counts(situation: Situation) -> Iterator[int]:
    """A few smaller numbers of whole nodes, and the largest power of two below; the larger ones first."""
    cluster = situation.cluster
    if len(cluster.groups) > 1:
        return
    given, node = cluster.num_devices, cluster.groups[0].devices_per_node
    whole = list(range((given - 1) // node * node, 0, -node))[:FEWER_NODES]
    power = 1 << (given.bit_length() - 1)
    yield from sorted({*whole, *([power] if power < given else [])}, reverse=True)


def _notes(before: Situation, was: Prediction, best: Prediction | None) -> Iterator[str]:
    """What else must be equal, or is not, for the checkpoint to load."""
    yield "the same model, optimizer and types of states; the iteration and the samples seen come from the checkpoint"
    if best is None:
        return
    rows = {vocabulary_rows(before, prediction.strategy.tp) for prediction in (was, best)}
    if len(rows) > 1:
        before_rows, after_rows = (vocabulary_rows(before, p.strategy.tp) for p in (was, best))
        yield (
            f"the vocabulary is padded to {after_rows:,} rows instead of {before_rows:,} (tp {was.strategy.tp} -> "
            f"{best.strategy.tp}): allow the shape of the embedding to differ, or set engine.vocabulary_multiple so "
            "that both agree"
        )
