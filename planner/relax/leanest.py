"""The layout with the least memory that a request leaves, found without a search: what is short, and by how much.

Of all layouts the leanest has one sequence a micro-batch, one chunk a rank and 1F1B, which holds the fewest
micro-batches; so only those are looked at, as far as pins and bans let them be chosen.
"""

import time
from typing import Final

import numpy as np

from cost_models.engines import even_stages
from cost_models.mesh import MeshBatch, MeshKey
from cost_models.specs.offload import NO_ACTIVATIONS, NO_OFFLOAD
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import StrategyRequest, divisors
from planner.answers import Prediction
from planner.candidates import enumerate_candidates, strategy_of
from planner.evaluation import Context, evaluate_many, predict
from planner.relax.lack import lack
from planner.request import SearchRequest
from planner.restrictions import Restrictions, read_restrictions
from planner.search.bounding.memory_bounds import MeshSums
from planner.search.bounding.mesh_bounds import mesh_sums
from planner.situation import Situation

TRIED_MESHES: Final = 16
"""Meshes with the least memory that are looked at closely."""

ENOUGH_MESHES: Final = 8
"""So many are looked at where all of them are far from fitting."""

FAR: Final = 1.3

LEAN: Final = {
    "mbs": 1,
    "vpp": 1,
    "schedule": "1f1b",
    "order": "tp-cp-ep-dp-pp",
    "cp_kind": "ring",
    "dp_replicate": 1,
}
"""Values that no other value needs less memory than."""


def leanest(situation: Situation, search: SearchRequest, deadline: float = float("inf")) -> Prediction | None:
    """The layout with the least peak, everything recomputed that may be; the fastest if several fit.

    None where nothing is legal. Past `deadline` (of time.monotonic) the layouts priced so far decide, one at least.
    """
    context = Context.of(situation, allow_at_risk=search.allow_at_risk)
    predictions = _on_groups(situation, search) if situation.cluster.is_mixed else []
    for restrictions in (_lean(situation, search), read_restrictions(search.pins, search.bans)):
        if not predictions and not situation.cluster.is_mixed:
            predictions = _predictions(context, restrictions, deadline)
    fitting = [p for p in predictions if p.verdict == "fits"]
    if fitting:
        return min(fitting, key=lambda p: p.step_s)
    return min(predictions, key=lambda p: lack(p, situation), default=None)


def _on_groups(situation: Situation, search: SearchRequest) -> list[Prediction]:
    """Layouts of a cluster of several device groups, placed as the engine does: every tp and pp, all recomputed."""
    restrictions = read_restrictions(search.pins, search.bans)
    devices, domain = situation.cluster.num_devices, situation.cluster.tiers[0].devices_per_domain
    full = restrictions.may_recompute_fully or restrictions.all_recomputed
    requests = [
        StrategyRequest(tp=tp, pp=pp, mbs=1, recompute="full" if full else None)
        for pp in divisors(devices)
        for tp in divisors(devices)
        if tp <= domain and pp <= situation.model.num_blocks and devices % (tp * pp) == 0
    ]
    found = evaluate_many(situation, requests)
    return [
        each
        for each in found
        if isinstance(each, Prediction)
        and all(
            restrictions.takes(key, getattr(each.strategy, key))
            for key in ("tp", "pp", "cp", "dp", "mbs", "zero")
        )
    ]


def _lean(situation: Situation, search: SearchRequest) -> Restrictions:
    """The user's restrictions with the lean values of knobs that these leave alone."""
    named = {*search.pins, *(ban.partition("=")[0] for ban in search.bans)}
    schedules = situation.engine.space(situation.model, situation.job).schedules
    pins: dict[str, object] = dict(search.pins)
    for key, value in LEAN.items():
        free = key not in named and not ({"vpp", "schedule"} & named and key in ("vpp", "schedule"))
        if free and (key != "schedule" or value in schedules):
            pins[key] = value
    return read_restrictions(pins, search.bans)


def _predictions(context: Context, restrictions: Restrictions, deadline: float) -> list[Prediction]:
    """The layouts with the least memory, priced: first with everything recomputed, then, where that is not far from
    fitting, with other bases of recompute, which are faster; with offload only where nothing fits without."""
    engine = context.situation.engine
    batches = [b for b in enumerate_candidates(engine, context.facts, restrictions).batches if b.size]
    found: list[Prediction] = []
    for batch in sorted(batches, key=lambda b: (_offloads(b.key), len(b.key.scopes))):
        if found and time.monotonic() > deadline:
            break
        fits = any(p.verdict == "fits" for p in found)
        if (_offloads(batch.key) and fits) or (batch.key.scopes and found and _far(found)):
            continue
        found += _leanest_of(context, batch, restrictions, deadline)
    return found


def _offloads(key: MeshKey) -> bool:
    return key.offload != NO_OFFLOAD or key.activations != NO_ACTIVATIONS


def _leanest_of(
    context: Context, batch: MeshBatch, restrictions: Restrictions, deadline: float
) -> list[Prediction]:
    guess = _least_bytes(mesh_sums(context.pricer, batch), batch.pp)
    few = batch.take(np.argsort(guess, kind="stable")[:TRIED_MESHES])
    costs_of = context.costs_of(few)
    alone = (
        few.key.scopes
        or few.key.activations.kind in ("blocks", "modules")
        or not restrictions.may_recompute_fully
    )
    full = 0 if alone else ALL_LAYERS
    found: list[Prediction] = []
    for row in range(few.size):
        if found and (time.monotonic() > deadline or (len(found) >= ENOUGH_MESHES and _far(found))):
            break
        stages = even_stages(context.facts.model.num_blocks, int(few.pp[row] * few.vpp[row]))
        strategy = strategy_of(few, row, stages, Recompute(few.key.scopes, full))
        found.append(predict(context, strategy, costs_of(row)))
    return found


def _far(found: list[Prediction]) -> bool:
    """Whether all of these need much more than there is, so that others of the kind will not fit either."""
    return all(p.memory.device_used_bytes > FAR * p.memory.capacity_bytes for p in found)


def _least_bytes(sums: MeshSums, pp: np.ndarray) -> np.ndarray:
    """A guess of the least peak: the fullest rank's bound, with in-flight boundary tensors of its share of blocks."""
    guess: np.ndarray = sums.short_bytes + sums.num_blocks / pp * (pp - 1) * sums.full_saved_bytes
    return guess
