"""Token, position and type embeddings; the token table is divided by rows over tensor-parallel ranks."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Embedding
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial
from planner.executor.model.tensor_parallel import leave, local, sequence_slice


class EmbeddingModule(nn.Module):
    """Rows of the table, plus learned positions, plus the first token type."""

    positions: nn.Parameter | None
    types: nn.Parameter | None

    def __init__(self, operator: Embedding, site: Site) -> None:
        super().__init__()
        maker, sliced = site.maker, site.tp.splits_sequence
        rows = Initial((operator.vocab_size, operator.width), shard=0, tie=operator.tie, pad=True)
        self.table = maker.make("table", rows)
        positions = Initial((operator.positions, operator.width), partial=sliced)
        self.positions = maker.make("positions", positions) if operator.positions else None
        types = Initial((operator.types, operator.width), partial=sliced)
        self.types = maker.make("types", types) if operator.types else None
        self.tp = site.tp
        self.context = site.context
        self.offset = int(site.semantics.number("position_offset", 0.0))
        self.scale = site.semantics.embedding_scale
        self.dropout = site.dropout if operator.dropout else 0.0

    def forward(self, ids: Tensor) -> Tensor:
        """[B, S] -> [B, S (/ tp), H]."""
        x = self._rows(ids)
        if self.scale != 1.0:
            x = x * torch.tensor(self.scale, dtype=x.dtype)
        if self.types is not None:
            x = x + local(self.types)[0]
        if self.positions is not None:
            x = x + sequence_slice(self._positions(local(self.positions), ids.shape[1]), self.tp, 0)
        return functional.dropout(x, self.dropout, self.training) if self.dropout else x

    def _positions(self, table: Tensor, length: int) -> Tensor:
        """Learned positions of the rank's share of the sequence."""
        if self.context.size == 1:
            return table[self.offset : self.offset + length]
        return table.index_select(0, self.context.positions(length).to(table.device) + self.offset)

    def _rows(self, ids: Tensor) -> Tensor:
        """Each rank looks up the ids of its own rows; the others' come with the sum."""
        table = local(self.table)
        if self.tp.size == 1:
            return functional.embedding(ids, table)
        own = ids - self.tp.rank * table.shape[0]
        outside = (own < 0) | (own >= table.shape[0])
        found = functional.embedding(own.masked_fill(outside, 0), table)
        return leave(found.masked_fill_(outside.unsqueeze(-1), 0.0), self.tp)
