"""Clusters: counting devices, filling domains, and which tier a group of ranks pays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cost_models.errors import InvalidCluster
from cost_models.specs.cluster import ClusterSpec, DeviceGroup, LinkTier, filled_domain


def nodes_of_8(nodes=2, devices=None, **tier):
    return ClusterSpec.model_validate(
        {
            "name": "toy",
            "groups": [{"device": "toy", "nodes": nodes, "devices_per_node": 8, "devices": devices}],
            "tiers": [
                {"name": "inside", "devices_per_domain": 8, "bytes_per_s": 3e11, "latency_s": 2e-6, **tier},
                {"name": "outside", "bytes_per_s": 2.5e10, "latency_s": 5e-6},
            ],
        }
    )


@pytest.mark.parametrize(
    ("num_devices", "domain"),
    [
        (8, 72),  # fits one rack
        (64, 72),
        (72, 72),
        (144, 72),  # 2 x 72
        (256, 64),  # 4 x 64
        (576, 72),  # 8 x 72, although 576 is 9 x 64 as well
        (2048, 64),  # 32 x 64
    ],
)
def test_jobs_fill_72_device_racks_whole_or_by_64(num_devices, domain):
    assert filled_domain(72, num_devices) == domain


@given(st.integers(1, 600), st.integers(1, 10_000))
def test_filled_domain_is_the_whole_domain_or_its_largest_power_of_two(physical, num_devices):
    domain = filled_domain(physical, num_devices)
    assert domain == physical or (domain & (domain - 1) == 0 and domain <= physical < 2 * domain)


def test_outermost_domain_follows_from_the_number_of_devices():
    assert [tier.devices_per_domain for tier in nodes_of_8(4).tiers] == [8, 32]


def test_partial_nodes_are_legal():
    one = nodes_of_8(1, devices=7)
    assert (one.num_devices, one.groups[0].nodes) == (7, 1)
    one_and_a_half = nodes_of_8(2, devices=12)
    assert (one_and_a_half.num_devices, one_and_a_half.tiers[-1].devices_per_domain) == (12, 12)


@pytest.mark.parametrize("devices", [8, 17])
def test_refuses_devices_that_do_not_need_or_do_not_fit_the_nodes(devices):
    with pytest.raises(InvalidCluster, match="do not fill 2 nodes of 8; give 9 to 16 devices"):
        nodes_of_8(2, devices=devices)


@pytest.mark.parametrize(("nodes", "devices"), [(0, None), (-1, None), (1, 0), (1, -5), (10**7, None)])
def test_refuses_no_devices_and_absurdly_many(nodes, devices):
    with pytest.raises(InvalidCluster, match=r"give at (least|most)"):
        nodes_of_8(nodes, devices=devices)


def test_with_devices_keeps_the_kind_of_node():
    grown = nodes_of_8(2).with_devices(20)
    assert (grown.groups[0].nodes, grown.groups[0].devices, grown.num_devices) == (3, 20, 20)
    assert grown.tiers[-1].devices_per_domain == 20
    assert grown.with_devices(16) == nodes_of_8(2)
    with pytest.raises(InvalidCluster, match="0 devices"):
        grown.with_devices(0)


@pytest.mark.parametrize(
    ("span", "tier"),
    [
        (1, 0),
        (4, 0),
        (8, 0),
        (3, 1),  # ranks 6, 7, 8 straddle two nodes
        (16, 1),
    ],
)
def test_a_block_that_straddles_two_domains_pays_the_outer_tier(span, tier):
    assert nodes_of_8(2).tier_for_span(span) == tier


def test_on_one_node_no_block_straddles():
    assert nodes_of_8(1, devices=6).tier_for_span(3) == 0


def test_devices_on_one_link_share_it():
    # 12.5 GB/s for two devices: 12.5 alone, 6.25 each when both send; no third one is on the link.
    tier = LinkTier.model_validate(
        {"name": "nic", "devices_per_domain": 8, "bytes_per_s": 12.5e9, "latency_s": 5e-6, "shared_by": 2}
    )
    assert [tier.bytes_per_s_each(active) for active in (1, 2, 3)] == [12.5e9, 6.25e9, 6.25e9]
    slower = tier.model_copy(update={"oversubscription": 2.0})
    assert slower.bytes_per_s_each(2) == 3.125e9


def test_mixed_groups_count_together_and_may_have_inner_tiers_of_their_own():
    inner = {"name": "pcie", "devices_per_domain": 4, "bytes_per_s": 3e10, "latency_s": 3e-6}
    cluster = ClusterSpec.model_validate(
        {
            "name": "mixed",
            "groups": [
                {"device": "fast", "nodes": 2, "devices_per_node": 8},
                {"device": "slow", "nodes": 1, "devices_per_node": 4, "tiers": [inner]},
            ],
            "tiers": [
                {"name": "nvlink", "devices_per_domain": 8, "bytes_per_s": 3e11, "latency_s": 2e-6},
                {"name": "site", "devices_per_domain": 16, "bytes_per_s": 2.5e10, "latency_s": 5e-6},
                {"name": "between sites", "bytes_per_s": 1e9, "latency_s": 2e-2},
            ],
        }
    )
    assert cluster.num_devices == 20
    assert not cluster.is_homogeneous
    assert [tier.name for tier in cluster.tiers_of(0)] == ["nvlink", "site", "between sites"]
    assert [tier.name for tier in cluster.tiers_of(1)] == ["pcie", "site", "between sites"]
    with pytest.raises(InvalidCluster, match="2 device groups"):
        cluster.with_devices(32)
    with pytest.raises(InvalidCluster, match="only a name"):
        _ = cluster.device


@pytest.mark.parametrize(
    ("tier", "error", "message"),
    [
        ({"devices_per_domain": 32}, InvalidCluster, "order the tiers from inside out"),
        ({"bytes_per_s": float("nan")}, ValidationError, "bytes_per_s"),
        ({"bytes_per_s": 0}, ValidationError, "bytes_per_s"),
        ({"latency_s": -1e-6}, ValidationError, "latency_s"),
        ({"shared_by": 0}, ValidationError, "shared_by"),
        ({"oversubscription": 0.5}, ValidationError, "oversubscription"),
        ({"gbps": 100}, ValidationError, "gbps"),
        ({"devices_per_domain": "many"}, ValidationError, "devices_per_domain"),
    ],
)
def test_refuses_impossible_tiers(tier, error, message):
    outer = {"devices_per_domain": 16}
    raw = {
        "name": "toy",
        "groups": [{"device": "toy", "nodes": 2, "devices_per_node": 8}],
        "tiers": [
            {"name": "inside", "devices_per_domain": 8, "bytes_per_s": 3e11, "latency_s": 2e-6, **tier},
            {"name": "outside", "bytes_per_s": 2.5e10, "latency_s": 5e-6, **outer},
        ],
    }
    with pytest.raises(error, match=message):
        ClusterSpec.model_validate(raw)


def test_refuses_an_outermost_tier_that_leaves_devices_out():
    raw = nodes_of_8(2).model_dump()
    raw["tiers"][-1]["devices_per_domain"] = 12
    with pytest.raises(InvalidCluster, match="'outside' joins 12 of 16 devices"):
        ClusterSpec.model_validate(raw)


@pytest.mark.parametrize(
    "raw",
    [
        {"name": "x", "groups": 3, "tiers": []},
        {"name": "x", "groups": [3], "tiers": [4]},
        {"name": "x", "groups": [{"device": "toy", "nodes": "a", "devices_per_node": 8}], "tiers": [{}]},
        {"name": "x", "groups": [{"device": "toy", "nodes": 1, "devices_per_node": 8}], "tiers": [4]},
        {"name": "x", "groups": [], "tiers": []},
        {},
    ],
)
def test_malformed_descriptions_are_refused_not_crashed_on(raw):
    with pytest.raises(ValidationError):
        ClusterSpec.model_validate(raw)


def test_dumped_cluster_reads_back_equal():
    cluster = nodes_of_8(2, devices=12)
    assert ClusterSpec.model_validate_json(cluster.model_dump_json()) == cluster
    assert isinstance(cluster.groups[0], DeviceGroup)


@pytest.mark.parametrize("key", ["nodes", "devices_per_node", "devices"])
@pytest.mark.parametrize("value", [True, "8", 8.0])
def test_a_count_is_a_whole_number_and_nothing_like_one(key: str, value: object):
    counts = {"nodes": 1, "devices_per_node": 8, "devices": 8, key: value}
    with pytest.raises(ValidationError, match="valid integer"):
        DeviceGroup(device="l4", **counts)
