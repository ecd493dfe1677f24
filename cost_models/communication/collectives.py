"""Seconds of one collective over the groups of an axis."""

from typing import Final

import numpy as np

from cost_models.communication.lines import (
    Array,
    Layout,
    Lines,
    all_reduce_lines,
    exchange_lines,
    fastest,
    gather_lines,
    lay_out,
    neighbour_lines,
)
from cost_models.communication.network import Network, network_of
from cost_models.communication.spans import ExpertGroups, Span
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
    lines = lines_of(collective, lay_out(span, known), known, fan_out, groups)
    return fastest(lines, payload)


def group_interference(span: Span, network: Network) -> Array:
    """Slowdown of computation for each second that a group's messages run beside it: the largest of its tiers."""
    at = lay_out(span, network)
    each = network.interference.reshape(-1, *[1] * at.size.ndim)
    slowest: Array = np.where(at.used, each, 0.0).max(axis=0)
    return slowest


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
    payload_bytes: Num, workers: Num, network: Network | ClusterSpec, servers: Num = 1
) -> Array:
    """Seconds in which every worker pushes its gradients and pulls the parameters, `payload_bytes` each way.

    The servers' links are the hot spot: t = 2 * bytes * workers / (servers * r) + 2 messages, r the
    send-receive rate of one device on the outermost tier that the workers need; servers share the parameters
    evenly (Li et al. 2014, section 5). Limit: workers and servers on one domain pay its rate only if the
    whole cluster is that domain.
    """
    known = network if isinstance(network, Network) else network_of(network)
    payload, count = np.asarray(payload_bytes, dtype=float), np.asarray(workers, dtype=float)
    outer = int(np.searchsorted(known.domains, known.num_devices))
    rate = float(known.rate[outer] * known.send_receive[outer])
    start = float((known.base_s[-1, outer] + known.ring_hop_s[-1, outer]) * 2.0)
    busy = start + 2.0 * payload * count / (np.asarray(servers, dtype=float) * rate)
    return np.where((count > 0.0) & (payload > 0.0), busy, 0.0)
