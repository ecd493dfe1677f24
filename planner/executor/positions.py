"""Which positions of a sequence a rank holds under context and tensor parallelism."""

from cost_models.specs.strategy import Strategy


def context_positions(strategy: Strategy, cp_rank: int, seq_len: int) -> tuple[int, ...]:
    """Positions of one context-parallel rank, in the order in which it holds them.

    For attention that travels over keys, the sequence is cut into 2 x cp equal chunks and rank r takes chunk r and the
    r-th from the end, so that under a causal mask all have the same work (Llama 3 2024, section 3.3.2). For Ulysses,
    where every rank sees all positions for its heads, one chunk each.
    """
    if strategy.cp == 1:
        return tuple(range(seq_len))
    if strategy.cp_kind == "ulysses":
        own = seq_len // strategy.cp
        return tuple(range(cp_rank * own, (cp_rank + 1) * own))
    chunk = seq_len // (2 * strategy.cp)
    last = 2 * strategy.cp - 1 - cp_rank
    return (
        *range(cp_rank * chunk, (cp_rank + 1) * chunk),
        *range(last * chunk, (last + 1) * chunk),
    )


def token_parts(strategy: Strategy, seq_len: int) -> tuple[tuple[int, ...], ...]:
    """Positions whose tokens each of the cp x tp ranks of a data rank routes to experts: its context-parallel share,
    cut into equal slices over tensor-parallel ranks."""
    parts = []
    for cp_rank in range(strategy.cp):
        held = context_positions(strategy, cp_rank, seq_len)
        own = len(held) // strategy.tp
        parts += [held[rank * own : (rank + 1) * own] for rank in range(strategy.tp)]
    return tuple(parts)
