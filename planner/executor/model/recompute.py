"""Activation recomputation: what is dropped after the forward pass and computed again before the backward.

Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; selective scopes as Korthikanti et al. 2022.
"""

from collections.abc import Callable

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cost_models.specs.model import LayerKind


def run_again(
    function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...], random: bool
) -> tuple[Tensor, ...]:
    """The function's outputs, keeping only its inputs; random state is kept where it draws numbers."""
    found: tuple[Tensor, ...] = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=random)
    return found


def scope_operators(kind: LayerKind, scopes: tuple[str, ...]) -> frozenset[str]:
    """Names of the operators that the scopes recompute in a layer of this kind."""
    return frozenset(name for scope in kind.scopes if scope.name in scopes for name in scope.operators)
