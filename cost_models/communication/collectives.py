"""Seconds of one collective over the groups of an axis."""

from typing import Final

import numpy as np

from cost_models.communication.lines import (
    Array,
    Layout,
    Lines,
    all_reduce_lines,
    exchange_lines,
    gather_lines,
    lay_out,
    neighbour_lines,
    priced,
)
from cost_models.communication.network import Network, network_of
from cost_models.communication.spans import ExpertGroups, Span, members_per_domain
from cost_models.operators.base import Collective
from cost_models.specs.cluster import ClusterSpec
from cost_models.units import Num

GATHERS: Final = frozenset({Collective.ALL_GATHER, Collective.REDUCE_SCATTER})


def collective_seconds(
    collective: Collective,
    payload_bytes: Num,
    span: Span,
    network: Network | ClusterSpec,
    *,
    fan_out: int = 0,
    groups: ExpertGroups | None = None,
) -> Array:
    """Seconds of one call; all arguments broadcast, a group of one rank and an empty payload take exactly 0.

    `payload_bytes` as in operators.base.Message: what all-reduce reduces, the whole tensor that all-gather
    makes or reduce-scatter takes, what one rank sends in all-to-all (its own part included) or to its
    neighbour. `fan_out` and `groups` describe a deduplicating token exchange. Give a `Network` where
    many calls are priced.
    """
    known = network if isinstance(network, Network) else network_of(network)
    payload = np.asarray(payload_bytes, dtype=float)
    at = lay_out(span, known)
    lines = lines_of(collective, at, known, fan_out, groups)
    return priced(lines, payload, at, collective, known)


def group_interference(span: Span, network: Network) -> Array:
    """Slowdown of computation for each second that a group's messages run beside it: the largest of its tiers."""
    at = lay_out(span, network)
    each = network.interference.reshape(-1, *[1] * at.size.ndim)
    slowest: Array = np.where(at.used, each, 0.0).max(axis=0)
    return slowest


def members_inside(span: Span, network: Network) -> Array:
    """Members of a group in a domain of the innermost tier that holds several; 1 where only the whole cluster does."""
    domains = network.domains.reshape(-1, *[1] * np.ndim(span.size))
    found = members_per_domain(span, domains)[:-1]
    several = np.where(found > 1, found, np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    inner: Array = np.where(several <= np.asarray(span.size), several, 1).astype(float)
    return inner


def lines_of(
    collective: Collective,
    at: Layout,
    network: Network,
    fan_out: int = 0,
    groups: ExpertGroups | None = None,
) -> Lines:
    """The alternatives of one collective for laid-out groups."""
    if collective is Collective.ALL_REDUCE:
        return all_reduce_lines(at, network)
    if collective is Collective.ALL_TO_ALL:
        return exchange_lines(at, network, fan_out, groups)
    if collective is Collective.SEND_RECEIVE:
        return neighbour_lines(at, network)
    return gather_lines(at, network)


def parameter_server_seconds(
    payload_bytes: Num, span: Span, network: Network | ClusterSpec, servers: Num = 1
) -> Array:
    """Seconds in which every rank pushes its gradients and pulls the parameters, `payload_bytes` each way.

    The servers' links are the hot spot (Li et al. 2014, section 5): the first ranks of a group, which work too, share
    the parameters evenly, so each takes and gives bytes / servers for every rank beside it: on a tier, for the
    m_t - m_in ranks of its domain that are not in the one inside. t = 2 max_t (bytes (m_t - m_in) / (servers r_t)) + 2
    messages. A worker's own port carries `payload_bytes` each way, never more than a server's.
    """
    known = network if isinstance(network, Network) else network_of(network)
    at = lay_out(span, known)
    dims = at.size.ndim
    served = np.maximum(np.asarray(servers, dtype=float), 1.0)
    carried = known.send_receive.reshape(-1, *[1] * dims) * at.links
    slope = np.where(at.used, (at.members - at.inside) / carried, 0.0).max(axis=0) / served
    hop = np.where(at.used, known.ring_hop_s[-1].reshape(-1, *[1] * dims), 0.0).max(axis=0)
    payload = np.asarray(payload_bytes, dtype=float)
    busy = 2.0 * (at.base[-1] + hop) + 2.0 * payload * slope
    return np.where((at.size > 1.0) & (payload > 0.0), busy, 0.0)
