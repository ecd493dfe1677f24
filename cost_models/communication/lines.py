"""Every algorithm as a straight line, seconds = start + bytes * slope, by group; the fastest line is taken.

Symbols: n ranks; m_t of them in a domain of tier t (m of the tier inside it: m_in, 1 below the innermost);
q = n / m_in; r_t usable one-way bytes/s of a device on tier t; a_t seconds of a hop. A tier is used if m_t >
m_in. The m_in members inside a domain each drive their own link outward, so a group leaves a domain at m_in
* r_t; sibling groups use the other links (`Network.rate` already counts all devices as sending).
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cost_models.communication.network import Network
from cost_models.communication.spans import ExpertGroups, Span, expected_destinations, members_per_domain
from cost_models.operators.base import Collective

Array = NDArray[np.float64]

NEVER_S_PER_BYTE: Final = 1.0
"""Slope of an algorithm that a group cannot use; finite, so that no bytes still cost nothing."""


MOST_HALVED_DOMAINS: Final = 2
"""Domains between which a tree sends every byte once each way, up to which it beats a ring for large payloads."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups on the tiers: arrays of shape (T, *groups)."""

    size: Array  # (*groups)
    members: Array  # m_t
    inside: Array  # m_in
    used: NDArray[np.bool_]
    links: Array  # bytes/s of a device, each tier: the full-mesh share of the rate applied
    base: Array  # (P, *groups) start of a call: the largest over the tiers used


@dataclass(frozen=True, slots=True)
class Lines:
    """Alternatives of a collective: `start_s` and `s_per_byte` of shape (alternatives, *groups)."""

    start_s: Array
    s_per_byte: Array


def lay_out(span: Span, network: Network) -> Layout:
    """Members of the groups of an axis on every tier."""
    size, stride = np.broadcast_arrays(np.asarray(span.size, np.int64), np.asarray(span.stride, np.int64))
    domains = _over(network.domains, size.ndim)
    members = members_per_domain(Span(size, stride), domains).astype(float)
    members[-1] = size
    members = np.maximum.accumulate(members, axis=0)
    inside = np.concatenate([np.ones_like(members[:1]), members[:-1]])
    used = members > inside
    links = np.broadcast_to(_over(network.rate, size.ndim), members.shape)
    if network.full_mesh:
        links = links.copy()
        links[0] *= np.maximum(members[0] - 1.0, 1.0) / max(float(network.domains[0]) - 1.0, 1.0)
    base = np.where(used, _over(network.base_s, size.ndim), 0.0).max(axis=1)
    return Layout(size.astype(float), members, inside, used, links, base)


def gather_lines(at: Layout, network: Network) -> Lines:
    """All-gather or reduce-scatter of B gathered bytes, by ring or by recursive doubling.

    Ring: every hop carries B (n - 1) / n, and 1 / m_in of a rank's hops leave its domain of the tier inside, less 1 /
    m_t that leave this tier's too. Recursive (NCCL's PAT): the same bytes at a tree's bandwidth in log2 n hops; so is
    the tree below. NCCL src/graph/tuning.cc.
    """
    dims = at.size.ndim
    moved = (at.size - 1.0) / np.maximum(at.size, 1.0)
    ring_start, tree_start = _starts(at, network)
    carried = moved * _crossing(at)
    ring = _slope(at, _over(network.ring, dims), carried, network)
    tree = _slope(at, _over(network.tree, dims), carried, network)
    return _lines(at, [ring_start, tree_start], [ring, tree])


def all_reduce_lines(at: Layout, network: Network) -> Lines:
    """All-reduce of B bytes by ring, tree, or reduction in the innermost switches with a tree outside.

    Ring: twice the reduce-scatter, 2 B (n - 1) / n (Thakur, Rabenseifner, Gropp 2005). Tree: a domain of two sends B
    outward, of more 2 B, up and down, as NCCL's model has it (tuning.cc: half of the bus bandwidth). In the switch
    (NVLink SHARP): a device sends B (1 + 1 / m) instead of 2 B (m - 1) / m.
    """
    dims = at.size.ndim
    moved = 2.0 * (at.size - 1.0) / np.maximum(at.size, 1.0)
    ring_start, tree_start = _starts(at, network)
    ring = _slope(at, _over(network.ring, dims), moved * _crossing(at), network)
    outward = np.where(at.size / at.inside > MOST_HALVED_DOMAINS, 2.0, 1.0)
    tree = _slope(at, _over(network.tree, dims), outward, network)
    starts = [at.base + 2.0 * (ring_start - at.base), at.base + 2.0 * (tree_start - at.base)]
    slopes = [ring, tree]
    if network.in_switch > 0.0:
        start, slope = _in_switch(at, network, outward)
        starts.append(start)
        slopes.append(slope)
    return _lines(at, starts, slopes)


def exchange_lines(at: Layout, network: Network, fan_out: int, groups: ExpertGroups | None = None) -> Lines:
    """All-to-all of B bytes sent by each rank, its own part included, spread evenly over the ranks.

    A tier carries the part that leaves the domain inside it, B (1 - m_in / n), on each device's own link.
    With `fan_out` = k copies of a token that travel once per destination, tiers outside the innermost carry d / k of
    it, d the domains reached (`expected_destinations`); the innermost hands a copy to each rank reached, D / k of B
    but for the rank that holds it already (DeepEP's forwarding). Every peer costs a message.
    """
    away = 1.0 - at.inside / np.maximum(at.size, 1.0)
    peers = np.where(at.used, at.members - at.inside, 0.0)
    if fan_out:
        domains = at.size / at.inside
        away *= expected_destinations(domains, fan_out, groups) / fan_out
        handed = expected_destinations(at.size, fan_out, groups) / fan_out
        away[0] = (1.0 - 1.0 / np.maximum(at.members[0], 1.0)) * handed
        peers[1:] /= at.inside[1:]
    dims = at.size.ndim
    carried = _over(network.all_to_all, dims) * at.links
    slope = np.where(at.used, away / carried, 0.0).max(axis=0)
    hop = np.where(at.used, _over(network.ring_hop_s, dims), 0.0).max(axis=1)
    start = at.base + hop + (peers * _over(network.peer_s, dims)).sum(axis=0)
    return _lines(at, [start], [slope / _share(at, network)])


def neighbour_lines(at: Layout, network: Network) -> Lines:
    """Send and receive of B bytes between ranks a stride apart, on the outermost tier the group uses."""
    dims = at.size.ndim
    carried = _over(network.send_receive * network.rate, dims)
    if network.full_mesh:  # a pair has one of the links
        carried = carried.copy()
        carried[0] /= max(float(network.domains[0]) - 1.0, 1.0)
    slope = np.where(at.used, 1.0 / carried, 0.0).max(axis=0)
    hop = np.where(at.used, _over(network.ring_hop_s, dims), 0.0).max(axis=1)
    return _lines(at, [at.base + hop], [slope / _share(at, network)])


def fastest(lines: Lines, payload_bytes: Array) -> Array:
    """Seconds of the fastest alternative; nothing to send, or nobody to send to, takes no time."""
    missing = payload_bytes.ndim - lines.start_s.ndim + 1
    where = (slice(None), *[np.newaxis] * missing)  # a negative count adds none
    best: Array = (lines.start_s[where] + payload_bytes * lines.s_per_byte[where]).min(axis=0)
    return np.where(payload_bytes > 0.0, best, 0.0)


def priced(lines: Lines, payload_bytes: Array, at: Layout, collective: Collective, network: Network) -> Array:
    """Seconds of one call: the fastest alternative, or as measured where the group stays in the innermost domain."""
    formula = fastest(lines, payload_bytes)
    if network.measured is None:
        return formula
    inside = ~at.used[1:].any(axis=0)
    found = network.measured.apply(collective, at.size, payload_bytes, formula)
    return np.where(inside & (at.size > 1.0), found, formula)


def _over(values: NDArray[Any], dims: int) -> NDArray[Any]:
    """Per-tier values with `dims` more axes for the groups."""
    return values.reshape(*values.shape, *([1] * dims))


def _share(at: Layout, network: Network) -> Array:
    """(P, *groups) share of the bandwidth that a protocol leaves: the least over the tiers used."""
    least: Array = np.where(at.used, _over(network.share, at.size.ndim), 1.0).min(axis=1)
    return least


def _starts(at: Layout, network: Network) -> tuple[Array, Array]:
    """Seconds of one pass with no bytes, by ring and by tree: (P, *groups) each.

    LL128 and Simple move large chunks, so their pipeline fills first.
    """
    dims = at.size.ndim
    safe = np.maximum(at.size, 1.0)
    ring_hops = safe / at.inside - safe / at.members
    tree_hops = np.log2(at.members / at.inside)
    ring = at.base + (ring_hops * _over(network.ring_hop_s, dims)).sum(axis=1)
    tree = at.base + (tree_hops * _over(network.tree_hop_s, dims)).sum(axis=1)
    fill = _fill(at, network)
    ring[1:] += fill
    tree[1:] += fill
    return ring, tree


def _crossing(at: Layout) -> Array:
    """(T, *groups) share, over 1 / m_in, of a rank's ring hops that a tier carries: those that end in its domain."""
    inner: Array = np.where(at.members < at.size, 1.0 - at.inside / at.members, 1.0)
    return inner


def _fill(at: Layout, network: Network) -> Array:
    """Seconds until a pipelined collective is at speed: ramp bytes over the slowest link used."""
    ramp = _over(network.ramp_bytes / network.ring, at.size.ndim) / at.links
    longest: Array = np.where(at.used, ramp, 0.0).max(axis=0)
    return longest


def _slope(at: Layout, efficiency: Array, moved: Array, network: Network) -> Array:
    """(P, *groups) seconds a byte: the slowest tier, each device driving its own link out of its domain."""
    seconds = np.where(at.used, moved / (at.inside * at.links * efficiency), 0.0)
    by_protocol: Array = (seconds / _over(network.share, at.size.ndim)).max(axis=1)
    return by_protocol


def _in_switch(at: Layout, network: Network, outward: Array) -> tuple[Array, Array]:
    """Start and slope of reduction in the innermost switches, a tree outside them: (1, *groups)."""
    dims = at.size.ndim
    inner = np.maximum(at.members[0], 1.0)
    slopes = outward / (at.inside * at.links * _over(network.tree, dims))
    slopes[0] = (1.0 + 1.0 / inner) / (at.links[0] * network.in_switch)
    slope = np.where(at.used, slopes, 0.0).max(axis=0)
    hops = 2.0 * np.log2(at.members / at.inside) * _over(network.tree_hop_s[-1], dims)
    hops[0] = np.where(at.used[0], network.in_switch_hop_s, 0.0)
    start = at.base[-1] + hops.sum(axis=0) + np.maximum(network.in_switch_fill_s, 2.0 * _fill(at, network))
    return start[np.newaxis], np.where(at.used[0], slope, NEVER_S_PER_BYTE)[np.newaxis]


def _lines(at: Layout, starts: list[Array], slopes: list[Array]) -> Lines:
    alone = at.size <= 1.0
    start, slope = np.concatenate(starts), np.concatenate(slopes)
    return Lines(np.where(alone, 0.0, start), np.where(alone, 0.0, slope))
