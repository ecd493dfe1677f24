"""Units: SI seconds, bytes and FLOP inside; conversion happens only at the edges, through this module."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Num = float | NDArray[np.float64]
"""A scalar or an array over candidate layouts; cost functions accept and return either."""

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3
KILO: Final = 1e3
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12


def format_bytes(num_bytes: float) -> str:
    """Bytes as text for people, in binary units (`1.50 GiB`)."""
    for unit, size in (("TiB", 1024 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:,.2f} {unit}"
    return f"{num_bytes:,.0f} B"


def format_seconds(seconds: float) -> str:
    """Seconds as text for people, three digits (`12.3 ms`, `4.50 s`)."""
    rounded = abs(float(f"{seconds:.3g}"))
    if rounded >= 1000:
        return f"{seconds:,.1f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if rounded >= size:
            return f"{_three(seconds / size)} {unit}"
    return f"{_three(seconds * 1e9)} ns" if rounded else "0 s"


def _three(value: float) -> str:
    """Three significant digits, zeros at the end included."""
    return f"{value:#.3g}".rstrip(".")


def format_count(count: float) -> str:
    """A large count as text for people (`70.55B` parameters)."""
    for unit, size in (("T", TERA), ("B", GIGA), ("M", MEGA), ("K", KILO)):
        if abs(count) >= size:
            return f"{count / size:,.2f}{unit}"
    return f"{count:,.0f}"
