"""Which positions of a sequence a rank holds under context and tensor parallelism."""

from typing import Final

from cost_models.specs.strategy import Strategy

ULYSSES: Final = "ulysses"

Run = tuple[int, int]
"""First position and number of positions."""


def context_runs(kind: str, cp: int, rank: int, seq_len: int) -> tuple[Run, ...]:
    """Runs of positions of one context-parallel rank, in the order in which it holds them.

    For attention that travels over keys, the sequence is cut into 2 x cp equal chunks and rank r takes chunk r and the
    r-th from the end, so that under a causal mask all have the same work (Llama 3 2024, section 3.3.2). For Ulysses,
    where every rank sees all positions for its heads, one chunk each.
    """
    if cp == 1:
        return ((0, seq_len),)
    if kind == ULYSSES:
        own = seq_len // cp
        return ((rank * own, own),)
    chunk = seq_len // (2 * cp)
    return (rank * chunk, chunk), ((2 * cp - 1 - rank) * chunk, chunk)


def positions_of(runs: tuple[Run, ...]) -> tuple[int, ...]:
    """The positions one by one."""
    return tuple(position for start, length in runs for position in range(start, start + length))


def token_parts(strategy: Strategy, seq_len: int) -> tuple[tuple[int, ...], ...]:
    """Positions whose tokens each of the cp x tp ranks of a data rank routes to experts: its context-parallel share,
    cut into equal slices over tensor-parallel ranks."""
    parts = []
    for rank in range(strategy.cp):
        held = positions_of(context_runs(strategy.cp_kind, strategy.cp, rank, seq_len))
        own = len(held) // strategy.tp
        parts += [held[place * own : (place + 1) * own] for place in range(strategy.tp)]
    return tuple(parts)
