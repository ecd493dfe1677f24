"""Which operators and settings of a model can be built, so that a run is refused by name before it is launched."""

from cost_models.operators.base import Operator
from cost_models.specs.model import ModelSpec, Role
from planner.executor.model.operators.functions import FUNCTIONS

FAMILIES = frozenset(
    {
        "activation",
        "attention",
        "batch_norm",
        "class_loss",
        "combine",
        "conv2d",
        "cross_entropy",
        "dispatch",
        "embedding",
        "grouped_linear",
        "linear",
        "lm_head",
        "norm",
        "pool",
        "residual",
        "rope",
        "router",
    }
)
"""Operator families that have a module."""


def unsupported_operators(model: ModelSpec) -> tuple[str, ...]:
    """What cannot be built, by name: operator families, features of operators, settings; empty where all can."""
    found: list[str] = []
    if len(model.stacks) > 1:
        found.append("several stacks (" + ", ".join(stack.name for stack in model.stacks) + ")")
    for layer in model.layers:
        if layer.role is Role.MTP:
            continue
        for operator in model.kinds[layer.kind].operators:
            found += _operator(operator)
    return tuple(dict.fromkeys(found))


def _operator(operator: Operator) -> list[str]:
    family: str = getattr(operator, "family", type(operator).__name__)
    if family not in FAMILIES:
        return [family]
    function = getattr(operator, "function", None)
    if function is not None and function not in FUNCTIONS:
        return [f"activation function {function}"]
    return []
