"""Numbers with their unit, as people write them in a cluster file: `300 GB/s`, `200 Gb/s`, `5 us`, `312 TFLOP/s`."""

import math
import re
from typing import Final

_WRITTEN: Final = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([A-Za-zµ/]+)")
_DECIMAL: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY: Final = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGT", start=1)}
_PREFIXES: Final = {**_DECIMAL, "K": 1e3, **_BINARY}
_TIMES: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SUFFIXES: Final = {
    "bytes/s": {"B/s": 1.0, "Bps": 1.0, "b/s": 0.125, "bps": 0.125, "bit/s": 0.125, "bits/s": 0.125},
    "bytes": {"B": 1.0},
    "flop/s": {"FLOP/s": 1.0, "FLOPS": 1.0, "FLOPs": 1.0, "flops": 1.0, "flop/s": 1.0},
    "W": {"W": 1.0},
}
EXAMPLES: Final = {
    "bytes/s": 'a number of bytes a second, as 300e9, or "300 GB/s"',
    "bytes": 'a number of bytes, as 80e9, or "80 GB"',
    "flop/s": 'a number of FLOP a second, as 312e12, or "312 TFLOP/s"',
    "s": 'a number of seconds, as 5e-6, or "5 us"',
    "W": 'a number of watts, as 400, or "400 W"',
    "count": "a whole number",
}


def quantity(text: str, unit: str) -> float:
    """The number in `unit` (bytes are capital B, bits small b); raises ValueError with what to write."""
    found = _WRITTEN.fullmatch(text.strip())
    number = _number(found[1]) if found else math.nan
    factor = _factor(found[2], unit) if found else math.nan
    if not math.isfinite(number * factor):
        raise ValueError(f"{text[:40]!r} is no quantity in {unit}; write {EXAMPLES[unit]}")
    return number * factor


def _factor(written: str, unit: str) -> float:
    """How many of `unit` one of what was written is; NaN where it is another kind of unit."""
    if unit == "s":
        return _TIMES.get(written, math.nan)
    for suffix, factor in _SUFFIXES.get(unit, {}).items():
        if written.endswith(suffix) and written.removesuffix(suffix) in _PREFIXES:
            return _PREFIXES[written.removesuffix(suffix)] * factor
    return math.nan


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
