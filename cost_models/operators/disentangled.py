"""Disentangled attention's position terms (DeBERTa, He et al. 2020): content to position and position to content."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
)
from cost_models.units import Num


class DisentangledBias(Operator):
    """Scores between contents and relative positions, added to attention's own (equation 4).

    Each of `terms` projects the table of 2 x span positions once for a whole micro-batch and multiplies it with
    every query (or key); `weights` and `biases` count the projections that have their own.
    """

    family: Literal["disentangled"] = "disentangled"
    hidden: int
    heads: int
    span: int
    terms: int
    weights: int
    biases: int = 0

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """A square matrix for each projection, and biases."""
        found = [ParameterGroup(f"{self.name}.weight", self.weights * self.hidden**2, Split.TP)]
        if self.biases:
            found.append(
                ParameterGroup(f"{self.name}.bias", self.biases * self.hidden, Split.TP, matrix=False)
            )
        return tuple(found)

    def _rows(self, at: Shard) -> Num:
        """Rows of the table in use: no more than the sequence reaches."""
        return 2.0 * np.minimum(self.span, at.seq_len)

    def _projection_flops(self, at: Shard) -> Num:
        return 2.0 * self.terms * self._rows(at) * float(self.hidden**2)

    def _score_flops(self, at: Shard) -> Num:
        return 2.0 * self.terms * at.sequences * at.seq_len * self._rows(at) * self.hidden

    def elements_in(self, at: Shard) -> Num:
        """Queries or keys of each term on one rank."""
        return at.tokens * self.terms * self.hidden / at.tp

    def elements_out(self, at: Shard) -> Num:
        """Scores of every query, or key, with every position of the table."""
        return at.tokens * self.terms * self._rows(at) * self.heads / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """The projection and the scores, each three times; scores are gathered into the square and added."""
        rows, terms = self._rows(at), float(self.terms)
        n, k = self.hidden / at.tp, float(self.hidden)
        project, score = self._projection_flops(at) / at.tp, self._score_flops(at) / (at.tp * at.cp)
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        weights = terms * (rows * k + k * n + rows * n) * style.compute_bytes
        shape = (at.seq_len / at.cp, rows, self.hidden / self.heads)
        squares = at.tokens * at.seq_len * self.heads / at.tp * terms * style.compute_bytes
        heads = at.sequences * self.heads / at.tp * terms
        gemm = KernelKind.GEMM
        return (
            Kernel(Phase.FORWARD, gemm, project, weights, rows, n, k, terms),
            Kernel(Phase.INPUT_GRADIENT, gemm, project, weights, rows, k, n, terms),
            Kernel(Phase.WEIGHT_GRADIENT, gemm, project, weights, k, n, rows, terms),
            Kernel(Phase.FORWARD, gemm, score, moved, *shape, heads),
            Kernel(Phase.INPUT_GRADIENT, gemm, 2.0 * score, 2.0 * moved, *shape, heads),
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, 3.0 * squares, count=2.0),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, 2.0 * squares, count=2.0),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The projected positions; queries and keys are attention's own."""
        projected = self.terms * self._rows(at) * self.hidden / at.tp
        return (Tensor(f"{self.name}.positions", projected),)

    def model_flops(self, at: Shard) -> Num:
        """Projections once, scores for every query or key."""
        return self._projection_flops(at) + self._score_flops(at)
