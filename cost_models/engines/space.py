"""What a search may try under an engine, beyond divisors of the device count."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Space:
    """The values a search may give each axis under this engine, beyond divisors of the device count."""

    zero: tuple[int, ...]
    schedules: tuple[str, ...]
    scopes: tuple[tuple[str, ...], ...]
    pipeline: bool = True
    tensor: bool = True
    context: bool = True
    expert: bool = True
    uniform_full: bool = True
    uniform_chunks: bool = False
    full_recompute: bool = True
