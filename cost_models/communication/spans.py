"""Where the ranks of a group sit: `size` ranks, `stride` apart, in domains of consecutive ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.units import Num

Array = NDArray[np.float64]
Count = int | NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """A group of `size` ranks, neighbours `stride` apart; scalars or arrays over candidates."""

    size: Count
    stride: Count = 1


def spans_of_order(order: Sequence[str], sizes: Mapping[str, Count]) -> dict[str, Span]:
    """The span of each axis when ranks are numbered along `order`, inner axis first.

    stride of an axis = product of the sizes of the axes inside it.
    """
    spans: dict[str, Span] = {}
    stride: Count = 1
    for axis in order:
        size = sizes.get(axis, 1)
        spans[axis] = Span(size, stride)
        stride = stride * size
    return spans


def members_per_domain(span: Span, domain_size: Count) -> NDArray[np.int64]:
    """Members of a group in the domain that has fewest of them, over all groups of the axis.

    Groups tile the ranks, so with q = domain / stride slots a domain, the smallest part that a domain
    boundary cuts off is gcd(size, q): 4 of 8 ranks at stride 2 in domains of 8; 1 for 3 ranks at stride 4,
    which straddle. A stride that does not divide the domain is taken to leave 1.
    """
    size, stride = np.asarray(span.size, dtype=np.int64), np.asarray(span.stride, dtype=np.int64)
    slots, rest = np.divmod(np.asarray(domain_size, dtype=np.int64), np.maximum(stride, 1))
    found = np.where((rest == 0) & (slots > 0), np.gcd(size, slots), 1)
    return np.minimum(found, size)


def crosses(span: Span, domain_size: Count) -> NDArray[np.bool_]:
    """Whether some group of the axis has members in more than one domain."""
    return members_per_domain(span, domain_size) < np.asarray(span.size)


def expected_destinations(domains: Num, fan_out: int, node_limit: int = 0) -> Array:
    """Domains that a token's `fan_out` copies reach, on average, when each copy picks a domain at random.

    q (1 - (1 - 1/q)^k), with q = min(domains, node_limit) where the router limits nodes (DeepSeek-V3
    technical report, section 2.1.2). 8 domains, 8 copies: 5.25; the same without replacement among 256
    experts is 5.29.
    """
    q = np.asarray(domains, dtype=float)
    if node_limit:
        q = np.minimum(q, float(node_limit))
    reached: Array = q * (1.0 - (1.0 - 1.0 / q) ** fan_out)
    return reached
