"""What FSDP2 holds while a unit (a layer, the embedding or the head) runs: gathered weights, whole gradients, buffers.

Bytes of unit u of elements e_u, gathered in c bytes and reduced in r bytes an element, over D ranks
(torch 2.13, torch/distributed/fsdp/_fully_shard: _fsdp_param_group.py, _fsdp_collectives.py):

    forward of u     weights c e_u, and the message they came in, c e_u, which lives until the next unit's copy
    backward of u    weights c e_u, the next message c e_(u-1), the gradients of u made so far, and the reduction's
                     input of the unit before, r e_(u+1)
    reduction of u   its gradients c e_u and their copy r e_u, the new shard r e_u / D, the message c e_(u-1)
    loss             nothing, or the head's weights where its unit is not resharded after forward

Where weights are kept from forward to backward (ZeRO 2) they rest with the states; a group of one rank has no message.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UnitBytes:
    """Bytes of every row's unit, arrays (rows, B): `weights` that come and go, the `message` they come in, whole
    `gradients`, the input of their `reduction`, and the `shard` of the gradients that stays."""

    weights: Array
    message: Array
    gradients: Array
    reduction: Array
    shard: Array

    def take(self, index: NDArray[np.int64]) -> "UnitBytes":
        """The bytes of chosen meshes."""
        return UnitBytes(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))

    @classmethod
    def joined(cls, parts: "list[UnitBytes]") -> "UnitBytes":
        """The bytes of several batches one after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    def pick(self, single: NDArray[np.bool_]) -> "UnitBytes":
        """Without the last line, which stands for the head where one rank holds all layers."""
        return UnitBytes(*(_folded(getattr(self, name), single) for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class PassBytes:
    """Highest instants (rows, B) above what is saved, without gathered weights: forward, backward, the loss behind;
    `boundary` is the gradient that goes on to the layer before."""

    forward: Array
    backward: Array
    behind: Array
    boundary: Array
    saved: Array


def unit_transients(
    passes: PassBytes, units: UnitBytes, last_block: int, *, keeps_head: bool
) -> tuple[Array, Array]:
    """Highest instant of every row, and that of its backward without the reduction before it.

    Interior blocks stand beside blocks of their own kind; the embedding before them, the head behind.
    """
    ahead, behind = units.message.copy(), units.reduction.copy()
    ahead[0], ahead[-1] = 0.0, units.message[last_block]
    behind[0], behind[-1] = units.reduction[1 if len(behind) > 2 else -1], 0.0
    backward = passes.backward + units.weights + ahead
    reducing = passes.boundary + units.gradients + units.reduction + units.shard + ahead - passes.saved
    forward = passes.forward + units.weights + units.message
    loss = passes.behind.copy()
    loss[-1] += units.weights[-1] if keeps_head else 0.0
    return np.maximum.reduce([forward, backward + behind, reducing, loss]), backward


def _folded(values: Array, single: NDArray[np.bool_]) -> Array:
    kept = values[:-1].copy()
    kept[-1] = np.where(single, values[-1], values[-2])
    return kept
