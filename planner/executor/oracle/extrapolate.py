"""The peak of a deep model from two shallow ones: every layer adds the same bytes once a step has its full shape."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost_models.errors import BadInput
from cost_models.specs.model import ModelSpec, Role
from cost_models.specs.recompute import ALL_LAYERS
from planner.executor.oracle.measure import Peaks, measure
from planner.executor.oracle.tracker import TOTAL, OraclePhase, Place
from planner.executor.request import RunOrder

DEPTHS = (4, 6)
"""Layers of the two runs; two layers are too few, for the first and the last of them stand beside larger units."""


@dataclass(frozen=True, slots=True)
class OraclePeak:
    """Bytes that torch allocates on one rank at the peak of a step, without context, workspaces and fragmentation."""

    peak_bytes: float
    phase: OraclePhase
    by_category: Mapping[str, float]
    """At the instant of the peak, in torch's categories; they sum to the peak."""
    by_phase: Mapping[OraclePhase, float]
    depths: tuple[int, int]
    """Layers of the two runs; equal where the model itself is as shallow."""


def oracle_peak(order: RunOrder, depths: tuple[int, int] = DEPTHS, rank: int = 0) -> OraclePeak:
    """The peak of one rank of an order's real program under torch's own memory tracker, extrapolated in the layers.

    Every phase, and the backward pass of every unit counted from the nearer end, is a straight line through two
    depths, and the highest line at the model's depth is the peak. Raises
    BadInput where the phase that peaks is made of other categories at one depth than at the other, and for models
    and recompute whose layers are not all alike.
    """
    layers = order.situation.model.num_blocks
    if layers <= depths[1]:
        found = measure(order, rank)
        return _peak(found, found, (layers, layers), layers)
    low, high = (measure(with_depth(order, depth), rank) for depth in depths)
    return _peak(low, high, depths, layers)


def with_depth(order: RunOrder, layers: int) -> RunOrder:
    """The same order of a model of fewer layers; raises BadInput where layers differ."""
    model, recompute = order.situation.model, order.strategy.recompute
    blocks = [layer for layer in model.layers if layer.role is Role.BLOCK]
    if len(blocks) > 1 or recompute.full not in (0, ALL_LAYERS):
        raise BadInput(
            f"{model.name} with recompute {recompute.text()} has layers of several kinds; the oracle needs equal ones"
        )
    strategy = replace(order.strategy, stages=(layers,))
    situation = replace(order.situation, model=_shallow(model, layers))
    return RunOrder(situation, strategy, order.options)


def _shallow(model: ModelSpec, layers: int) -> ModelSpec:
    found = tuple(
        layer.model_copy(update={"count": layers}) if layer.role is Role.BLOCK else layer
        for layer in model.layers
    )
    return model.model_copy(update={"layers": found})


def _peak(low: Peaks, high: Peaks, depths: tuple[int, int], layers: int) -> OraclePeak:
    span = depths[1] - depths[0]
    share = (layers - depths[0]) / span if span else 0.0

    def line(place: Place, name: str) -> float:
        first = low[place].get(name, 0.0)
        return first + share * (high[place].get(name, 0.0) - first)

    totals = {place: line(place, TOTAL) for place in low if place in high}
    peak = max(totals, key=lambda each: totals[each])
    by_phase = {
        phase: max(size for (each, _), size in totals.items() if each is phase) for phase, _ in totals
    }
    phase = peak[0]
    names = [{name for name, size in peaks[peak].items() if size} for peaks in (low, high)]
    if names[0] != names[1]:
        raise BadInput(
            f"the {phase} peak holds {', '.join(sorted(names[0] ^ names[1]))} at one of {depths} layers only; use "
            f"more layers"
        )
    by_category = {name: line(peak, name) for name in sorted(names[0] - {TOTAL})}
    return OraclePeak(totals[peak], phase, by_category, by_phase, depths)
