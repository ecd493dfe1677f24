"""Token, position and type embeddings."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    Axis,
    Collective,
    DtypeRole,
    Kernel,
    Message,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    memory_kernels,
)
from cost_models.units import Num

EMBEDDING_TIE = "word_embeddings"
"""Tie id of the token table, shared by a tied head and by the tables of several stacks."""


class Embedding(Operator):
    """Rows of a vocabulary table divided over tensor-parallel ranks, plus full copies of position and type tables.

    `position_width` above 0: positions are wider than the table, whose rows a linear widens first (OPT 350M).
    """

    family: Literal["embedding"] = "embedding"
    vocab_size: int
    width: int
    positions: int = 0
    position_width: int = 0
    types: int = 0
    tie: str = ""
    dropout: bool = False

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """The table, learned positions, and token types."""
        table = ParameterGroup(
            f"{self.name}.table",
            self.vocab_size * self.width,
            Split.VOCABULARY,
            rows=self.vocab_size,
            tie=self.tie,
            matrix=False,
        )
        found = [table]
        if self.positions:
            elements = self.positions * (self.position_width or self.width)
            found.append(ParameterGroup(f"{self.name}.positions", elements, matrix=False))
        if self.types:
            found.append(ParameterGroup(f"{self.name}.types", self.types * self.width, matrix=False))
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """The embedded tokens of the rank."""
        return at.sp_tokens * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """A gather forward and a scatter-add backward."""
        moved = at.tokens * self.width * style.compute_bytes
        return memory_kernels(2.0 * moved, 3.0 * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Token ids, and the dropout mask."""
        held = [Tensor(f"{self.name}.ids", at.tokens, DtypeRole.INT64)]
        if self.dropout and style.dropout:
            held.append(Tensor(f"{self.name}.dropout_mask", self.elements_in(at), DtypeRole.MASK))
        return tuple(held)

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """The partial sums of a divided table: reduce-scatter under sequence parallelism, else all-reduce."""
        payload = at.tokens * self.width * style.compute_bytes
        sp = np.asarray(at.sp) > 0
        with_sp, without = np.where(sp, payload, 0.0), np.where(sp, 0.0, payload)
        return (
            Message(Phase.FORWARD, Collective.REDUCE_SCATTER, Axis.TP, with_sp),
            Message(Phase.INPUT_GRADIENT, Collective.ALL_GATHER, Axis.TP, with_sp),
            Message(Phase.FORWARD, Collective.ALL_REDUCE, Axis.TP, without),
        )


class PositionTable(Operator):
    """Learned numbers that depend on position alone: added to the stream's `width` features, or (width 0) a bias
    inside attention, or tokens of their own in front of the sequence."""

    family: Literal["position_table"] = "position_table"
    elements: int
    width: int = 0

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """One full copy on every tensor-parallel rank."""
        return (ParameterGroup(f"{self.name}.weight", self.elements, matrix=False),)

    def elements_in(self, at: Shard) -> Num:
        """The features that it is added to."""
        return at.sp_tokens * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One addition; backward sums over the samples."""
        moved = self.elements_in(at) * style.compute_bytes
        return memory_kernels(2.0 * moved, moved)


class IdleWeights(Operator):
    """Weights that a class holds and the forward pass never reads: stored, reduced and updated, no kernels."""

    family: Literal["idle_weights"] = "idle_weights"
    elements: int

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """One full copy on every tensor-parallel rank."""
        return (ParameterGroup(f"{self.name}.weight", self.elements, matrix=False),)

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """None."""
        return ()
