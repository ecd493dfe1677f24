"""Scaled dot-product attention over heads: causal, windowed, cross; flash or materialised scores; context parallel."""

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
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    Transient,
)
from cost_models.operators.context import inner_ranks
from cost_models.units import Num

FLASH_BACKWARD_FACTOR = 2.5
"""FlashAttention-2 (Dao 2023, section 4): backward makes 5 matmuls to forward's 2, as it recomputes Q K^T."""


class Attention(Operator):
    """softmax(Q K^T) V for one layer; inputs are the tensors q, k, v.

    `window` limits how far back a query looks (0: all), `chunk` keeps it inside its own chunk of
    positions, `cross` reads keys of the other stack, `relative_buckets` holds a learned relative bias of
    buckets x heads (T5, first layer of a stack only).
    """

    family: Literal["attention"] = "attention"
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    causal: bool = True
    window: int = 0
    chunk: int = 0
    cross: bool = False
    dropout: bool = False
    relative_buckets: int = 0
    sinks: bool = False
    compress: int = 0
    """Above 0: beside its window a query sees earlier keys that stand for so many positions each (DeepSeek-V4)."""
    compress_top_k: int = 0
    """Above 0: it sees so many of those only."""
    fp32_softmax: bool = True
    """Written in operators, the softmax runs in fp32 (not in GPT-2's and BERT's kind)."""
    value_store: int = 0
    """Above 0: the library's values are a part of a tensor of so many features a token, which lives on with them."""
    store_holds_qk: bool = False
    """Queries and keys are parts of that tensor too (GPT-2)."""
    soft_cap: bool = False
    """Scores pass through a scaled tanh (Gemma 2): inside a flash kernel for free, else one more tensor of scores."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Relative bias tables and attention sinks, where the layer has them."""
        groups = []
        if self.relative_buckets:
            elements = self.relative_buckets * self.heads
            groups.append(ParameterGroup(f"{self.name}.relative_bias", elements, Split.TP, matrix=False))
        if self.sinks:
            groups.append(ParameterGroup(f"{self.name}.sinks", self.heads, Split.TP, matrix=False))
        return tuple(groups)

    def _key_len(self, at: Shard) -> Num:
        own = at.context_len if self.cross else at.seq_len
        return own * (1.0 + 1.0 / self.compress) if self.compress else own

    def _attended(self, at: Shard) -> Num:
        """Mean number of keys a query looks at: half under a causal mask, at most the window."""
        if not self.compress:
            return self._attended_of(self._key_len(at), self.window)
        near = self._attended_of(at.seq_len, self.window)
        return near + self._attended_of(at.seq_len / self.compress, self.compress_top_k)

    def _attended_of(self, keys: Num, limit: int) -> Num:
        """Mean over the queries of what they see of so many keys, at most `limit` (0: all)."""
        if self.chunk:
            whole = np.floor(keys / self.chunk)
            rest = keys - whole * self.chunk
            mean = (whole * self.chunk**2 + rest**2) / keys
            return mean / 2.0 if self.causal else mean
        if self.cross or not self.causal:
            return np.minimum(keys, 2.0 * limit) if limit else keys
        if not limit:
            return keys / 2.0
        window = np.minimum(limit, keys)
        return window - window * window / (2.0 * keys)

    def model_flops(self, at: Shard) -> Num:
        """2 (d_qk + d_v) FLOPs per query, attended key and head."""
        queries = at.sequences * at.seq_len
        return 2.0 * queries * self._attended(at) * self.heads * (self.qk_dim + self.v_dim)

    def square_flops(self, at: Shard) -> Num:
        """The same over every key, masked or not: what kernels without a mask's knowledge do."""
        pairs = at.sequences * at.seq_len * self._key_len(at)
        return 2.0 * pairs * self.heads * (self.qk_dim + self.v_dim)

    def _qkv_elements(self, at: Shard) -> tuple[Num, Num, Num]:
        kv_ways = np.minimum(at.tp, self.kv_heads)
        key_tokens = at.context_tokens if self.cross else at.tokens
        q = at.tokens * self.heads * self.qk_dim / at.tp
        if self.compress:
            key_tokens = key_tokens * (1.0 + 1.0 / self.compress)
        k = key_tokens * self.kv_heads * self.qk_dim / kv_ways
        v = key_tokens * self.kv_heads * self.v_dim / kv_ways
        return q, k, v

    def _scores(self, at: Shard) -> Num:
        return at.tokens * self._key_len(at) * self.heads / at.tp

    def elements_in(self, at: Shard) -> Num:
        """q, k and v on one rank."""
        return sum(self._qkv_elements(at))

    def elements_out(self, at: Shard) -> Num:
        """The attention output on one rank."""
        return at.tokens * self.heads * self.v_dim / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Flash skips masked blocks and re-reads nothing; the unfused path makes the full square in passes."""
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        m, n, k = at.seq_len / at.cp, self._key_len(at), float(self.qk_dim)
        if style.flash_attention:
            flops = self.model_flops(at) / (at.tp * at.cp)
            back = FLASH_BACKWARD_FACTOR * flops
            return (
                Kernel(Phase.FORWARD, KernelKind.ATTENTION, flops, moved, m, n, k),
                Kernel(Phase.INPUT_GRADIENT, KernelKind.ATTENTION, back, 2.0 * moved, m, n, k),
            )
        scores = self._scores(at)
        flops = 2.0 * scores * (self.qk_dim + self.v_dim)
        forward, backward = self._score_traffic(scores, style)
        heads = at.sequences * self.heads / at.tp
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, m, n, k, heads),
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, forward, count=3.0),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, 2.0 * flops, 2.0 * moved, m, n, k, heads),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, backward, count=3.0),
        )

    def _score_traffic(self, scores: Num, style: Style) -> tuple[Num, Num]:
        """Bytes of materialised scores moved forward and backward, the products' own included.

        Forward: written, read and written by the softmax, read. Backward: gradient written, softmax reads two
        and writes one, products read three. Dropout reads, writes and keeps a byte; an fp32 softmax copies; a soft
        cap reads and writes forward, reads two and writes one backward.
        """
        each = style.compute_bytes
        dropout = 2.0 * each + 1.0 if self.dropout and style.dropout else 0.0
        copies = 16.0 if style.softmax_fp32_copy else 0.0
        extra = dropout + copies
        cap = each if self.soft_cap else 0.0
        return scores * (4.0 * each + extra + 2.0 * cap), scores * (7.0 * each + extra + 3.0 * cap)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Flash: q, k, v, output (twice where heads were exchanged) and the fp32 log-sum-exp. Unfused:
        the probabilities (Korthikanti 2022, eq. 1)."""
        if style.library and not style.flash_attention:
            return (*self._library_inputs(at, style), *self._score_tensors(at, style))
        q, k, v = self._qkv_elements(at)
        names = (*self.inputs, *("q", "k", "v")[len(self.inputs) :])
        held = (Tensor(names[0], q), Tensor(names[1], k), Tensor(names[2], v))
        repeats = self.heads / self.kv_heads if style.repeated_keys else 1.0
        if repeats > 1.0:
            of = self.name
            held = (held[0], Tensor(f"{of}.keys", k * repeats), Tensor(f"{of}.values", v * repeats))
        if not style.flash_attention:
            return (*held, *self._score_tensors(at, style))
        lse = Tensor(f"{self.name}.lse", at.tokens * self.heads / at.tp, DtypeRole.FP32)
        kept = (*held, Tensor(self.name, self.elements_out(at)), lse)
        if not (style.cp_kind == "ulysses" or inner_ranks(style.cp_kind)):
            return kept
        # The kernel keeps its output by heads, the next linear by positions, as the exchange gave it back.
        by_heads = np.where(np.asarray(at.cp) > 1, self.elements_out(at), 0.0)
        return (*kept, Tensor(f"{self.name}.by_heads", by_heads))

    def _library_inputs(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Queries; keys and values repeated to as many heads; SDPA's own products scale fp32 copies of both first."""
        q, k, v = self._qkv_elements(at)
        repeats = self.heads / self.kv_heads
        fresh = style.math_attention
        dtype = DtypeRole.FP32 if fresh else DtypeRole.COMPUTE
        copied = repeats > 1.0 or (fresh and style.upcasts)
        whole = at.tokens * self.value_store / at.tp
        values = v * repeats
        if self.value_store and not copied:  # products of several sequences copy the part they read
            values = np.where(np.asarray(at.sequences) == 1.0, whole, v)
        held = Tensor(f"{self.name}.values", values, dtype)
        if self.store_holds_qk and not fresh:
            return (Tensor(f"{self.name}.values", whole),)
        return (
            Tensor(f"{self.name}.queries", q, dtype),
            Tensor(f"{self.name}.keys", k * repeats, dtype),
            held,
        )

    def _score_tensors(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Tensors of scores: the capped ones, the softmax (and its copy in the compute dtype), dropout's two."""
        scores, drops = self._scores(at), self.dropout and style.dropout
        wide = style.math_attention or (style.softmax_fp32_copy and self.fp32_softmax)
        kept = Tensor(f"{self.name}.probabilities", scores)
        held = [Tensor(f"{self.name}.probabilities_fp32", scores, DtypeRole.FP32) if wide else kept]
        if self.soft_cap:
            held.append(Tensor(f"{self.name}.capped", scores))
        last = DtypeRole.FP32 if style.math_attention else DtypeRole.COMPUTE
        if drops:
            mask = DtypeRole.FP32 if style.math_attention and style.cpu_kernels else DtypeRole.MASK
            held.append(Tensor(f"{self.name}.dropout_mask", scores, mask))
            held.append(Tensor(f"{self.name}.dropped", scores, last))
        elif wide and style.upcasts and not style.math_attention:
            held.append(kept)
        return tuple(held)

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Context parallel: a ring of key/value blocks, one gather of them, all-to-all over heads (Ulysses), or the
        last inside groups of neighbours and the first across them (hierarchical)."""
        q, k, v = self._qkv_elements(at)
        keys = (k + v) * style.compute_bytes
        if style.cp_kind == "ring":
            hops = np.maximum(np.asarray(at.cp) - 1.0, 0.0)
            return (
                Message(Phase.FORWARD, Collective.SEND_RECEIVE, Axis.CP, keys, hops, "cp_ring"),
                Message(Phase.INPUT_GRADIENT, Collective.SEND_RECEIVE, Axis.CP, 2.0 * keys, hops, "cp_ring"),
            )
        if style.cp_kind == "allgather":
            whole = keys * at.cp
            return (
                Message(Phase.FORWARD, Collective.ALL_GATHER, Axis.CP, whole),
                Message(Phase.INPUT_GRADIENT, Collective.ALL_GATHER, Axis.CP, whole),
                Message(Phase.INPUT_GRADIENT, Collective.REDUCE_SCATTER, Axis.CP, whole),
            )
        inner = inner_ranks(style.cp_kind)
        ways, axis = (inner, Axis.CP_INNER) if inner else (at.cp, Axis.CP)
        # Where there are more ranks than key/value heads, every rank gets a copy of one.
        copies = np.maximum(ways * np.minimum(at.tp, self.kv_heads) / self.kv_heads, 1.0)
        moved = (q + self.elements_out(at)) * style.compute_bytes + keys * copies
        exchanged = (
            Message(Phase.FORWARD, Collective.ALL_TO_ALL, axis, moved, 1.0),
            Message(Phase.INPUT_GRADIENT, Collective.ALL_TO_ALL, axis, moved, 1.0),
        )
        if not inner:
            return exchanged
        hops = np.maximum(
            np.asarray(at.cp) / inner - 1.0, 0.0
        )  # of N times the tokens, of an Nth of the heads
        return (
            *exchanged,
            Message(Phase.FORWARD, Collective.SEND_RECEIVE, Axis.CP_OUTER, keys, hops, "cp_ring"),
            Message(
                Phase.INPUT_GRADIENT, Collective.SEND_RECEIVE, Axis.CP_OUTER, 2.0 * keys, hops, "cp_ring"
            ),
        )

    def transient(self, at: Shard, style: Style) -> Transient:
        """Flash holds gradients only; the unfused path also holds scores and their gradient, in fp32 where upcast.

        A fused softmax overwrites the gradient it is given, and what dropout made is gone before its own gradient is.
        """
        inside, outside = self.elements_in(at), self.elements_out(at)
        forward, backward = outside * style.compute_bytes, (inside + outside) * style.compute_bytes
        if style.cp_kind == "allgather":
            gathered = np.where(np.asarray(at.cp) > 1, inside * (at.cp - 1.0) * style.compute_bytes, 0.0)
            forward, backward = forward + gathered, backward + 2.0 * gathered
        if not style.flash_attention:
            each = 4.0 if style.softmax_fp32_copy else style.compute_bytes
            copies = 2.0 if style.softmax_fp32_copy or style.library else 1.0
            forward, backward = forward + self._scores(at) * each, backward + copies * self._scores(at) * each
        return Transient(forward, backward)
