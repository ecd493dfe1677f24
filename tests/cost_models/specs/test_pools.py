"""Device groups: their names, their links inside, and what lies between them, with figures by hand."""

import pytest

from cost_models.errors import IllegalStrategy, InvalidCluster
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.pools import Pool, full_names, groups_text, link_between, pool_clusters, pools_of
from cost_models.specs.strategy import parse_strategy


def tier(name: str, gb_per_s: float, **more: object) -> dict:
    return {"name": name, "bytes_per_s": gb_per_s * 1e9, "latency_s": 2e-6, **more}


def group(name: str, nodes: int, per_node: int, **more: object) -> dict:
    return {"name": name, "device": f"{name}-device", "nodes": nodes, "devices_per_node": per_node, **more}


def cluster(groups: list[dict], tiers: list[dict]) -> ClusterSpec:
    return ClusterSpec.model_validate({"name": "several", "groups": groups, "tiers": tiers})


def domains(spec: ClusterSpec) -> list[int]:
    return [one.devices_per_domain for one in spec.tiers]


def test_unequal_nodes_each_have_a_domain_of_their_own():
    found = cluster([group("a", 4, 8), group("b", 3, 4)], [tier("nvlink", 300), tier("infiniband", 25)])
    assert [one.devices_per_domain for one in found.tiers_of(0)] == [8, 44]
    assert [one.devices_per_domain for one in found.tiers_of(1)] == [4, 44]
    assert found.is_mixed
    # Ranks numbered over nodes of 8 and then of 4: blocks of gcd(8, 4) = 4 never straddle; all 32 + 12 are joined.
    (shared, _) = pool_clusters(found, ("a", "b"))
    assert (domains(shared), shared.num_devices) == ([4, 44], 44)
    (alone,) = pool_clusters(found, ("b",))
    assert (domains(alone), alone.num_devices, alone.groups[0].nodes) == ([4, 12], 12, 3)


def test_a_tier_larger_than_some_nodes_is_refused_with_the_way_out():
    tiers = [tier("nvlink", 300, devices_per_domain=8), tier("infiniband", 25)]
    with pytest.raises(InvalidCluster, match=r"joins 8 devices, but a node of group 'b' has 4; leave"):
        cluster([group("a", 4, 8), group("b", 3, 4)], tiers)


@pytest.mark.parametrize(
    ("nodes", "domain"),
    [(18, 72), (36, 72), (64, 64), (8, 32)],  # 72 fits, 144 = 2 x 72, 256 = 4 x 64, 32 fit into one rack
)
def test_racks_of_72_are_filled_by_their_own_group(nodes, domain):
    racks = group("racks", nodes, 4, tiers=[tier("nvlink", 900, physical_devices_per_domain=72)])
    found = cluster([racks, group("b", 3, 8)], [tier("nvlink", 450), tier("infiniband", 50)])
    (alone,) = pool_clusters(found, ("racks",))
    assert domains(alone) == [domain, 4 * nodes]


def test_the_slowest_tier_on_the_way_is_between_two_groups():
    # b's own fabric gives 50 GB/s over 2 devices a port and 2 times oversubscription: 12.5, less than the 25 outside.
    own = [tier("nvlink", 300), tier("infiniband", 50, shared_by=2, oversubscription=2.0)]
    tiers = [tier("nvlink", 300), tier("infiniband", 100, devices_per_domain=32), tier("ethernet", 25)]
    groups = [group("a", 4, 8), group("b", 4, 8, tiers=own), group("c", 4, 8)]
    found = cluster(groups, tiers)
    (slow,) = link_between(found, ("a",), ("b",)).tiers
    assert (slow.name, slow.bytes_per_s_each(2)) == ("infiniband", 12.5e9)
    (plain,) = link_between(found, ("a",), ("c",)).tiers
    assert (plain.name, plain.bytes_per_s_each(2)) == ("ethernet", 25e9)


def test_zones_meet_on_the_innermost_tier_that_holds_both():
    tiers = [
        tier("nvlink", 300, devices_per_domain=8),
        tier("infiniband", 25, devices_per_domain=64),
        {"name": "ethernet wan", "bytes_per_s": 1e9, "latency_s": 0.03},
    ]
    found = cluster([group("a", 4, 8), group("b", 4, 8), group("c", 8, 8)], tiers)
    near, far = (link_between(found, *pair).tiers[0] for pair in ((("a",), ("b",)), (("b",), ("c",))))
    assert (near.name, near.latency_s.value) == ("infiniband", 2e-6)
    assert (far.name, far.latency_s.value, far.bytes_per_s.value) == ("ethernet wan", 0.03, 1e9)
    near_pool, far_pool = (pool_clusters(found, pair)[0] for pair in (("a", "b"), ("b", "c")))
    assert domains(near_pool) == [8, 64, 64]
    assert domains(far_pool) == [8, 32, 96]  # gcd(32, 64) ranks stay within a zone


def test_a_partial_node_counts_with_its_own_devices():
    found = cluster(
        [group("a", 2, 8, devices=12), group("b", 1, 4)], [tier("nvlink", 300), tier("infiniband", 25)]
    )
    (alone,) = pool_clusters(found, ("a",))
    assert (alone.num_devices, domains(alone), alone.groups[0].devices) == (12, [8, 12], 12)
    (shared, _) = pool_clusters(found, ("a", "b"))
    assert (shared.num_devices, shared.groups[0].num_devices) == (16, 16)


def test_groups_without_names_take_those_of_their_devices():
    raw = [{"device": "x", "nodes": 1, "devices_per_node": n} for n in (8, 4, 8)]
    found = cluster(raw, [tier("nvlink", 300), tier("infiniband", 25)])
    assert found.group_names == ("x", "x-2", "x-3")
    with pytest.raises(InvalidCluster, match="2 device groups are called 'a'"):
        cluster([group("a", 1, 8), group("a", 1, 4)], [tier("nvlink", 300), tier("infiniband", 25)])


def test_groups_that_are_alike_are_one_kind():
    same = [{**group("a", 2, 8), "device": "x"}, {**group("b", 3, 8), "device": "x"}]
    assert not cluster(same, [tier("nvlink", 300), tier("infiniband", 25)]).is_mixed


def test_own_tiers_leave_the_outermost_to_the_cluster():
    own = [tier("nvlink", 300), tier("infiniband", 25)]
    with pytest.raises(InvalidCluster, match="nothing joins it with the others"):
        cluster(
            [group("a", 1, 8, tiers=own), group("b", 1, 8)], [tier("nvlink", 300), tier("infiniband", 25)]
        )


def test_groups_are_written_run_by_run_and_read_back():
    asked = parse_strategy("pp=8,groups=a*4+b/c*3+d")
    assert asked.groups == ("a",) * 4 + ("b/c",) * 3 + ("d",)
    assert groups_text(asked.groups) == "a*4+b/c*3+d*1"
    assert pools_of(asked.groups[:7], 16) == (Pool(("a",), 64), Pool(("b", "c"), 48))


def test_a_beginning_that_only_one_group_has_names_it():
    names = ("a100-sxm-80gb", "a100-pcie", "h100")
    assert full_names("h/a100-p", names) == "a100-pcie/h100"
    with pytest.raises(IllegalStrategy, match="may be a100-sxm-80gb or a100-pcie"):
        full_names("a100", names)
    with pytest.raises(IllegalStrategy, match="did you mean h100"):
        full_names("h10O", names)
    with pytest.raises(IllegalStrategy, match="twice in one pool"):
        full_names("h100/h100", names)
