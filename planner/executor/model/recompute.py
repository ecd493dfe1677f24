"""Activation recomputation: what is dropped after the forward pass and computed again before the backward.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; selective scopes as Korthikanti et al. 2022.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cost_models.specs.model import LayerKind
from planner.executor.model.wiring import Regions, keys_of


def run_again(
    function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...], random: bool
) -> tuple[Tensor, ...]:
    """The function's outputs, keeping only its inputs; random state is kept where it draws numbers."""
    found: tuple[Tensor, ...] = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=random)
    return found


@dataclass(frozen=True, slots=True)
class Recomputed:
    """Operators that run again before their backward, and keys of tensors that are given up though others read them."""

    operators: frozenset[str] = frozenset()
    given_up: frozenset[str] = frozenset()


def recomputed(kind: LayerKind, scopes: tuple[str, ...], regions: Regions) -> Recomputed:
    """What the scopes recompute in a layer of this kind."""
    chosen = [scope for scope in kind.scopes if scope.name in scopes]
    operators = frozenset(name for scope in chosen for name in scope.operators)
    tensors = {name for scope in chosen for name in scope.gives_up}
    given_up = keys_of(kind.operators, regions, tensors) if tensors else frozenset()
    return Recomputed(operators, given_up)
