"""Adaptive embedding and softmax (Grave et al. 2016; Baevski and Auli 2018): rarer words have narrower rows.

Every token is taken to be among the most frequent words, those of the first cluster: a lower bound of the work, as
tail clusters run for their own tokens only.
"""

from typing import Literal

from cost_models.operators.base import (
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Style,
    Tensor,
)
from cost_models.specs.base import Frozen
from cost_models.units import Num


class Cluster(Frozen):
    """Words of one range of frequency: rows of the table, and their width."""

    rows: int
    width: int


class _Adaptive(Operator):
    """Tables and projections of all clusters, a full copy on every rank; both ends tie them by number."""

    clusters: tuple[Cluster, ...]
    hidden: int

    def _table(self, index: int) -> ParameterGroup:
        cluster = self.clusters[index]
        tie = f"adaptive_table_{index}"
        return ParameterGroup(f"{self.name}.{tie}", cluster.rows * cluster.width, tie=tie, matrix=False)

    def _projection(self, index: int, tied: bool = True) -> ParameterGroup:
        tie = f"adaptive_projection_{index}"
        elements = self.hidden * self.clusters[index].width
        return ParameterGroup(f"{self.name}.{tie}", elements, tie=tie if tied else "", matrix=index == 0)

    def _gemm(self, rows: Num, n: float, k: float, style: Style) -> tuple[Kernel, ...]:
        flops, moved = 2.0 * rows * n * k, (rows * k + k * n + rows * n) * style.compute_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, rows, n, k),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, flops, moved, rows, k, n),
            Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, flops, moved, k, n, rows),
        )


class AdaptiveEmbedding(_Adaptive):
    """A row of the token's cluster, projected to the stream."""

    family: Literal["adaptive_embedding"] = "adaptive_embedding"

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """A table and a projection for each cluster."""
        found: list[ParameterGroup] = []
        for index in range(len(self.clusters)):
            found += [self._table(index), self._projection(index)]
        return tuple(found)

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """The projection, reading gathered rows."""
        return self._gemm(at.sp_tokens, float(self.hidden), float(self.clusters[0].width), style)

    def elements_in(self, at: Shard) -> Num:
        """Gathered rows."""
        return at.sp_tokens * self.clusters[0].width

    def elements_out(self, at: Shard) -> Num:
        """Tokens x hidden."""
        return at.sp_tokens * self.hidden

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The gathered rows."""
        return (Tensor(f"{self.name}.rows", self.elements_in(at)),)

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x hidden x width of the first cluster."""
        return 2.0 * at.sequences * at.seq_len * self.hidden * self.clusters[0].width


class AdaptiveSoftmax(_Adaptive):
    """Projection to the first cluster's width, scores of its words and of the other clusters as one class each.

    `own_projections` names clusters whose projection is not the embedding's.
    """

    family: Literal["adaptive_softmax"] = "adaptive_softmax"
    own_projections: tuple[int, ...] = ()

    @property
    def classes(self) -> int:
        """Scores of the first step: its words and the other clusters."""
        return self.clusters[0].rows + len(self.clusters) - 1

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Tables and projections (tied), a bias for each word, a row and a bias for each further cluster."""
        further = len(self.clusters) - 1
        words = sum(cluster.rows for cluster in self.clusters)
        found = [
            ParameterGroup(f"{self.name}.bias", words, matrix=False),
            ParameterGroup(f"{self.name}.clusters", further * (self.clusters[0].width + 1), matrix=False),
        ]
        for index in range(len(self.clusters)):
            found += [self._table(index), self._projection(index, index not in self.own_projections)]
        return tuple(found)

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Projection and scores."""
        width = float(self.clusters[0].width)
        projection = self._gemm(at.sp_tokens, width, float(self.hidden), style)
        return (*projection, *self._gemm(at.sp_tokens, float(self.classes), width, style))

    def elements_in(self, at: Shard) -> Num:
        """Tokens x hidden."""
        return at.sp_tokens * self.hidden

    def elements_out(self, at: Shard) -> Num:
        """Scores of the first step."""
        return at.sp_tokens * self.classes

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input and the projected tokens."""
        projected = Tensor(f"{self.name}.projected", at.sp_tokens * self.clusters[0].width)
        return (Tensor(self.inputs[0], self.elements_in(at)), projected)

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x width of the first cluster x (hidden + classes)."""
        return 2.0 * at.sequences * at.seq_len * self.clusters[0].width * (self.hidden + self.classes)
