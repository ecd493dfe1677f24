"""Choice of the keys that a query may look at: the lightning indexer of DeepSeek's sparse attention."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    Axis,
    Collective,
    DtypeRole,
    Kernel,
    KernelKind,
    Message,
    Operator,
    Phase,
    Shard,
    Style,
    Tensor,
)
from cost_models.units import Num


class Indexer(Operator):
    """sum over heads of w ReLU(q . k) for every earlier key, and the `top_k` best keys of every query
    (DeepSeek-V3.2 2025, equation 1). Inputs: the indexer's queries, its one key head, and the heads' weights.

    A full copy on every tensor-parallel rank, which scores its own queries against the keys of all.
    """

    family: Literal["indexer"] = "indexer"
    heads: int
    head_dim: int
    top_k: int
    compress: int = 1
    """Positions that one key stands for (DeepSeek-V4)."""

    def model_flops(self, at: Shard) -> Num:
        """2 d FLOPs per query, earlier key (half of the square) and head."""
        return at.sequences * at.seq_len * at.seq_len / self.compress * self.heads * self.head_dim

    def elements_in(self, at: Shard) -> Num:
        """Queries and weights of the rank's tokens, keys of all."""
        return at.sp_tokens * self.heads * (self.head_dim + 1) + self._key_elements(at)

    def _key_elements(self, at: Shard) -> Num:
        return at.tokens / self.compress * self.head_dim

    def elements_out(self, at: Shard) -> Num:
        """Indices of the chosen keys."""
        return at.sp_tokens * np.minimum(self.top_k, at.seq_len / self.compress)

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """The products, and a pass over the fp32 scores for the choice; backward is that of the indexer's own loss."""
        scores = at.sp_tokens * at.seq_len / (2.0 * self.compress)
        flops = 2.0 * scores * self.heads * self.head_dim
        moved = self.elements_in(at) * style.compute_bytes
        m, n, k = at.sp_tokens, at.seq_len / self.compress, float(self.head_dim)
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, m, n, k, float(self.heads)),
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, 2.0 * scores * 4.0),
            Kernel(
                Phase.INPUT_GRADIENT, KernelKind.GEMM, 2.0 * flops, 2.0 * moved, m, n, k, float(self.heads)
            ),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs and the chosen indices; scores are made again."""
        queries = at.sp_tokens * self.heads
        return (
            Tensor(self.inputs[0], queries * self.head_dim),
            Tensor(self.inputs[1], self._key_elements(at)),
            Tensor(self.inputs[2], queries),
            Tensor(f"{self.name}.indices", self.elements_out(at), DtypeRole.INT64),
        )

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Keys of all tokens are gathered over the ranks that divide them, and so are the chosen indices."""
        keys = self._key_elements(at) * style.compute_bytes
        chosen = at.tokens * np.minimum(self.top_k, at.seq_len / self.compress) * 8.0
        divided = np.asarray(at.sp) > 0
        gather = Collective.ALL_GATHER
        return (
            Message(Phase.FORWARD, gather, Axis.TP, np.where(divided, keys + chosen, 0.0)),
            Message(Phase.FORWARD, gather, Axis.CP, keys * at.cp),
        )
