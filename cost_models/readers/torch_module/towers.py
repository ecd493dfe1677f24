"""Parts that text alone does not reach, such as a vision tower: each is run apart, with one input of its own kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cost_models.operators.traced import Growth
from cost_models.readers.torch_module.costs import Traced, UnitCost, trace_model
from cost_models.readers.torch_module.gaps import gap_costs, total_cost
from cost_models.readers.torch_module.inputs import counts_tokens
from cost_models.readers.torch_module.structure import LayerModule, StackModule, Structure
from cost_models.readers.torch_module.trace import Prepared

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Tower:
    """A part that ran apart: the places of its layers in the whole, their costs, positions of its one input."""

    places: tuple[int, ...]
    traced: Traced
    positions: int
    outside: UnitCost
    """Its work outside its layers, of one input."""

    def cost_at(self, place: int) -> UnitCost | None:
        """Cost of the layer at this place of the whole, None where it did not run or is no layer of the tower."""
        for call in self.traced.calls:
            if self.places[call.layer] == place:
                return self.traced.units.get((call.kind, call.variant))
        return None


def trace_towers(prepared: Prepared, found: Traced) -> tuple[Tower, ...]:
    """Towers of a model whose own run left layers out."""
    if not found.calls:
        return ()
    layers = prepared.structure.layers
    called = {id(layers[call.layer].module) for call in found.calls}
    left = {id(layer.module): place for place, layer in enumerate(layers) if id(layer.module) not in called}
    towers = []
    for part in _parts(prepared.model, left, called):
        tower = _trace(prepared, part, layers)
        if tower is not None:
            towers.append(tower)
    return tuple(towers)


def _parts(model: nn.Module, left: Mapping[int, int], called: set[int]) -> Iterator[nn.Module]:
    """Outermost models inside the model that hold layers which did not run, and none that did."""
    for child in model.children():
        inside = {id(module) for module in child.modules()}
        if not inside & set(left):
            continue
        is_model = hasattr(child, "main_input_name") and hasattr(child, "config")
        if is_model and not inside & called and not counts_tokens(child):
            yield child
        else:
            yield from _parts(child, left, called)


def _trace(prepared: Prepared, part: nn.Module, layers: Sequence[LayerModule]) -> Tower | None:
    inside = {id(module) for module in part.modules()}
    places = tuple(place for place, layer in enumerate(layers) if id(layer.module) in inside)
    own = StackModule("", tuple(layers[place] for place in places))
    structure = Structure((own,), (), 0)
    apart = Prepared(part, structure, prepared.experts, None, None, prepared.until)
    found = trace_model(apart, part.config)
    if not found.calls:
        return None
    first = found.units.get((found.calls[0].kind, found.calls[0].variant))
    if first is None or not first.channels:
        return None
    positions = max(round(first.width.linear / first.channels), 1)
    outside = total_cost(gap_costs(found, with_table=True, with_head=True))
    return Tower(places, found, positions, _once(outside))


def _once(cost: UnitCost) -> UnitCost:
    """Work of one input a sequence, however long the sequence."""

    def fixed(growth: Growth) -> Growth:
        return Growth(constant=growth.linear)

    return replace(
        cost,
        flops=fixed(cost.flops),
        moved=fixed(cost.moved),
        kept={role: fixed(growth) for role, growth in cost.kept.items()},
        width=Growth(),
    )
