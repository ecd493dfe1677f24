"""What a module does outside its layers: before the first, between them, after the last."""

from __future__ import annotations

from collections.abc import Iterable

from cost_models.operators.base import DtypeRole
from cost_models.operators.traced import Growth
from cost_models.readers.torch_module.costs import Traced, UnitCost
from cost_models.readers.torch_module.trace import GAP, HEAD, TABLE


def gap_costs(found: Traced, *, with_table: bool, with_head: bool) -> tuple[UnitCost, UnitCost, UnitCost]:
    """Costs before, between and after the layers; table and head only where no operator of their own stands."""
    last = len(found.calls)
    before: list[UnitCost] = []
    between: list[UnitCost] = []
    after: list[UnitCost] = []
    for key, cost in found.units.items():
        if key[0] == GAP:
            place = before if key[1] == 0 and last else after if key[1] == last else between
            place.append(cost)
        elif (key == TABLE and with_table) or key[0] == "again":
            before.append(cost)
        elif key == HEAD and with_head:
            after.append(cost)
    return total_cost(before), total_cost(between), total_cost(after)


def total_cost(costs: Iterable[UnitCost]) -> UnitCost:
    """The work of several units as one."""
    held = list(costs)
    kept: dict[DtypeRole, Growth] = {}
    for cost in held:
        for role, growth in cost.kept.items():
            kept[role] = _sum((kept.get(role, Growth()), growth))
    return UnitCost(
        flops=_sum(cost.flops for cost in held),
        moved=_sum(cost.moved for cost in held),
        kept=kept,
        launches=sum(cost.launches for cost in held),
        matmuls=max(sum(cost.matmuls for cost in held if cost.flops != Growth()), 1),
        columns=max((cost.columns for cost in held), default=1.0),
        depth=max((cost.depth for cost in held), default=1.0),
        convolution=any(cost.convolution for cost in held),
        attention=tuple(each for cost in held for each in cost.attention),
    )


def _sum(growths: Iterable[Growth]) -> Growth:
    constant = linear = quadratic = 0.0
    for each in growths:
        constant += each.constant
        linear += each.linear
        quadratic += each.quadratic
    return Growth(constant=constant, linear=linear, quadratic=quadratic)
