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


@dataclass(frozen=True, slots=True)
class ExpertGroups:
    """A router that lets a token choose among `kept` of `groups` equal groups of experts (DeepSeek-V3 technical report,
    section 2.1.2: 4 of 8, so that it reaches 4 nodes at most)."""

    groups: int
    kept: int

    def reachable(self, parts: Num) -> Num:
        """Of so many equal parts of the experts, those that a token can reach: whole groups, or a share of each."""
        count = np.asarray(parts, dtype=float)
        return np.where(count > self.groups, count * self.kept / self.groups, np.minimum(count, self.kept))


def expected_destinations(parts: Num, fan_out: int, groups: ExpertGroups | None = None) -> Array:
    """Parts (ranks, or domains of ranks) that a token's `fan_out` copies reach when each picks one at random.

    q (1 - (1 - 1/q)^k), q the parts within reach. 8 domains, 8 copies: 5.25; the same without replacement among 256
    experts is 5.29.
    """
    q = np.maximum(np.asarray(parts if groups is None else groups.reachable(parts), dtype=float), 1.0)
    reached: Array = q * (1.0 - (1.0 - 1.0 / q) ** fan_out)
    return reached
