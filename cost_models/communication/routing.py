"""How the router of a model limits where tokens go."""

from collections.abc import Iterable

from cost_models.communication.spans import ExpertGroups
from cost_models.operators.base import Operator
from cost_models.operators.moe import Router


def expert_groups(operators: Iterable[Operator]) -> ExpertGroups | None:
    """The groups of the first router that keeps some of them only; None where every expert is within reach."""
    for operator in operators:
        if isinstance(operator, Router) and 0 < operator.kept_groups < operator.groups:
            return ExpertGroups(operator.groups, operator.kept_groups)
    return None
