"""Which rule forbids every layout under some pins: the one that the nearest layouts break."""

import numpy as np

from cost_models.engines import even_stages
from cost_models.errors import Violation
from cost_models.mesh import MeshBatch
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.candidates import all_meshes, strategy_of
from planner.evaluation import Context
from planner.request import SearchRequest
from planner.restrictions import read_restrictions


def broken_by_all(context: Context, search: SearchRequest, as_given: Strategy) -> tuple[Violation, ...]:
    """The rules that the layouts with the fewest broken rules break; empty where some layout is legal.

    Without any layout at all (degrees that do not divide the devices) those of the strategy completed by defaults.
    """
    engine, facts = context.situation.engine, context.facts
    batch = all_meshes(engine, facts, read_restrictions(search.pins, search.bans))
    if batch.size == 0:
        return engine.violations(facts, as_given) or (_nothing(search),)
    masks = np.stack([rule.broken(facts, batch) for rule in engine.rules()])
    counts = masks.sum(0)
    if not counts.min():
        return ()
    return _explained(context, batch, int(_nearest(batch, counts, as_given)))


def _nearest(batch: MeshBatch, counts: np.ndarray, as_given: Strategy) -> int:
    """The mesh with the fewest broken rules; of several the one nearest to the strategy with defaults."""
    axes = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "mbs", "sp")
    wanted = {axis: int(getattr(as_given, axis)) for axis in axes}
    equal = np.sum([getattr(batch, axis) == value for axis, value in wanted.items()], axis=0)
    return int(np.lexsort((-equal, counts))[0])


def _explained(context: Context, batch: MeshBatch, row: int) -> tuple[Violation, ...]:
    blocks = context.facts.model.num_blocks
    stages = even_stages(blocks, min(int(batch.pp[row] * batch.vpp[row]), blocks))
    strategy = strategy_of(batch, row, stages, Recompute())
    return context.situation.engine.violations(context.facts, strategy)


def _nothing(search: SearchRequest) -> Violation:
    pins = ", ".join(f"{key}={value}" for key, value in search.pins.items())
    return Violation("pins", f"the pins {pins} leave no combination of axes", ("fewer pins",))
