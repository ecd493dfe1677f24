"""What a recompute drops and runs again: whole scopes, or operator by operator inside a layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cost_models.operators import Attention, Linear
from cost_models.operators.base import Operator

PER_OP: Final = "per_op"
"""Scope in which matrix products and fused attention keep their outputs, every second product excepted."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a recompute does not keep: operators that run again, and outputs given up although others read them.

    `shares` is the part of a fused linear that runs again, `kept_shares` the part of its output that is kept, and
    `kept_outputs` names operators whose output is kept although no backward reads it.
    """

    again: frozenset[str] = frozenset()
    given_up: frozenset[str] = frozenset()
    shares: Mapping[str, float] = field(default_factory=dict)
    kept_shares: Mapping[str, float] = field(default_factory=dict)
    kept_outputs: frozenset[str] = frozenset()

    def share_again(self, op: Operator) -> float:
        """Share of an operator's forward that runs again."""
        return self.shares.get(op.name, 1.0) if op.name in self.again else 0.0

    def loses(self, tensor: str) -> bool:
        """Whether an output of an operator that runs again is lost."""
        return tensor not in self.kept_shares and tensor not in self.kept_outputs

    def moves_again(self, op: Operator) -> bool:
        """Whether an operator's forward messages run again: reductions are kept operator by operator."""
        kept = self.shares and isinstance(op, Linear) and op.split == "row"
        return op.name in self.again and not kept


def drop_per_operator(operators: tuple[Operator, ...]) -> Dropped:
    """Selective checkpointing operator by operator (torchtitan, distributed/activation_checkpoint.py).

    Outputs of fused attention, of tensor-parallel reductions and of every odd matrix product in order are kept;
    everything else, and every even product, runs again. Parts of a fused linear count as products of their own.
    Grouped products of experts run again.
    """
    again, given_up, kept_outputs = set[str](), set[str](), set[str]()
    shares: dict[str, float] = {}
    kept_shares: dict[str, float] = {}
    count = 0
    for op in operators:
        if isinstance(op, Attention):
            continue
        again.add(op.name)
        if not isinstance(op, Linear):
            given_up.add(op.name)
            continue
        kept = 0
        for part in op.parts:
            count += 1
            if count % 2:
                kept += part.features
            else:
                given_up.add(part.name)
        share = kept / op.out_features
        shares[op.name] = 1.0 - share
        if not share:
            given_up.add(op.name)
        elif share < 1.0:
            kept_shares[op.name] = share
        else:
            kept_outputs.add(op.name)
    return Dropped(frozenset(again), frozenset(given_up), shares, kept_shares, frozenset(kept_outputs))
