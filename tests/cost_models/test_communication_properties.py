"""What holds for every collective on every network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.communication import Network, Span, collective_seconds, network_of
from cost_models.operators.base import Collective
from cost_models.profiles import load_cluster

NETWORKS = {
    name: network_of(load_cluster(name))
    for name in ("dgx-1:64", "dgx-a100:1024", "dgx-h100:1024", "gb200-nvl72:256", "mi250x:64", "mi300x:64")
}
PLAIN = ("dgx-1:64", "dgx-a100:1024")  # neither reduction in the switch nor a full mesh

collectives = st.sampled_from(list(Collective))
networks = st.sampled_from(sorted(NETWORKS))
powers = st.integers(0, 6)
payloads = st.floats(1.0, 1e11)


def seconds(collective: Collective, payload: float, span: Span, network: Network, fan_out: int = 0) -> float:
    return float(collective_seconds(collective, payload, span, network, fan_out=fan_out))


@given(collectives, networks, st.integers(1, 64), st.integers(1, 64), payloads)
@settings(max_examples=300, deadline=None)
def test_physical_limits_and_bytes(
    collective: Collective, name: str, size: int, stride: int, payload: float
) -> None:
    network, span = NETWORKS[name], Span(size, stride)
    time_s = seconds(collective, payload, span, network)
    assert seconds(collective, payload * 1.5, span, network) >= time_s
    if size == 1:
        assert time_s == 0.0
        return
    # no rank sends faster than its fastest link: at least B (n - 1) / n leave a rank, B / 1 for all-reduce
    fastest = float(network.rate.max())
    least = (
        payload
        if collective in {Collective.ALL_REDUCE, Collective.SEND_RECEIVE}
        else payload * (1 - 1 / size)
    )
    assert time_s >= least / fastest


@given(networks, st.integers(1, 64), st.integers(1, 64), payloads)
@settings(max_examples=300, deadline=None)
def test_all_reduce_costs_at_least_a_reduce_scatter(
    name: str, size: int, stride: int, payload: float
) -> None:
    network, span = NETWORKS[name], Span(size, stride)
    scatter = seconds(Collective.REDUCE_SCATTER, payload, span, network)
    assert seconds(Collective.ALL_REDUCE, payload, span, network) >= scatter


@given(collectives, networks, powers, powers, payloads)
@settings(max_examples=300, deadline=None)
def test_nearer_is_never_dearer(
    collective: Collective, name: str, log_size: int, log_stride: int, payload: float
) -> None:
    # neighbouring ranks against the same group spread out: of m members in a domain each has a port that takes 1 / m of
    # what crosses its own link otherwise
    network, size = NETWORKS[name], 2**log_size
    near = seconds(collective, payload, Span(size), network)
    members = min(int(network.domains[0]) >> log_stride, size)
    spared = 1.0 / members if 1 < members < size else 0.0
    spread = seconds(collective, payload, Span(size, 2**log_stride), network)
    assert near * (1.0 - spared) <= spread * (1 + 1e-12)


@given(collectives, st.sampled_from(PLAIN), st.integers(0, 5), st.integers(0, 3), payloads)
@settings(max_examples=200, deadline=None)
def test_more_ranks_are_never_cheaper(
    collective: Collective, name: str, log_size: int, log_stride: int, payload: float
) -> None:
    # groups of a power of two; others may straddle a node that a larger group fills
    network, stride = NETWORKS[name], 2**log_stride
    small, large = Span(2**log_size, stride), Span(2 ** (log_size + 1), stride)
    least = seconds(collective, payload, small, network) * (1 - 1e-12)
    assert seconds(collective, payload, large, network) >= least


@given(networks, st.integers(1, 6), payloads, st.integers(1, 16))
@settings(max_examples=100, deadline=None)
def test_deduplication_never_costs(name: str, log_size: int, payload: float, fan_out: int) -> None:
    network, span = NETWORKS[name], Span(2**log_size)
    plain = seconds(Collective.ALL_TO_ALL, payload, span, network)
    assert seconds(Collective.ALL_TO_ALL, payload, span, network, fan_out) <= plain * (1 + 1e-12)


@given(collectives, networks, st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_arrays_equal_scalars(collective: Collective, name: str, seed: int) -> None:
    draw, network = np.random.default_rng(seed), NETWORKS[name]
    size, stride = draw.integers(1, 65, 6), draw.integers(1, 65, 6)
    payload = 10 ** draw.uniform(0, 10, 6)
    whole = collective_seconds(collective, payload, Span(size, stride), network, fan_out=4)
    for i in range(6):
        one = seconds(collective, float(payload[i]), Span(int(size[i]), int(stride[i])), network, 4)
        assert one == pytest.approx(whole[i], rel=1e-12)
