"""Links whose figures look as if they were meant in another unit are named; published clusters are not."""

from collections.abc import Callable

import pytest

from cost_models.profiles import cluster_from_spec, list_clusters, load_preset
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.situation import Situation
from planner.warnings import _units

Make = Callable[..., Situation]


def with_links(of: Situation, inside: tuple[float, float], between: tuple[float, float]) -> Situation:
    """The same question on two nodes with links of these rates and latencies."""
    group = {"device": "a100-sxm-80gb", "nodes": 2, "devices_per_node": 4}
    tiers = [
        {"name": name, "bytes_per_s": rate, "latency_s": latency}
        for name, (rate, latency) in (("nvlink", inside), ("network", between))
    ]
    cluster = cluster_from_spec({"name": "ours", "groups": [group], "tiers": tiers})
    return Situation(of.model, cluster, of.job, of.engine, of.job_request)


@pytest.mark.parametrize(
    ("inside", "between", "says"),
    [
        ((300.0, 2e-6), (25.0, 5e-6), "bytes_per_s counts bytes, 300e9 is 300 GB/s"),  # meant as GB/s
        ((300e9, 2e-6), (200e9, 5e-6), "200 Gb/s is 25e9 bytes a second"),  # meant as Gb/s
        ((300e9, 2e-6), (25e9, 5.0), "latency_s counts seconds, 5e-6 is 5 us"),  # meant as us
    ],
)
def test_slips_of_units_are_named(
    make_situation: Make, inside: tuple[float, float], between: tuple[float, float], says: str
) -> None:
    of = with_links(
        make_situation("llama-3.2-1b", "dgx-a100", 8, seq_len=2048, global_batch=32), inside, between
    )
    assert any(says in warning for warning in evaluate(of, parse_strategy("dp=8")).warnings)


def test_published_clusters_are_plausible(make_situation: Make) -> None:
    of = make_situation("llama-3.2-1b", "dgx-a100", 8, seq_len=2048, global_batch=32)
    for name in list_clusters():
        cluster = load_preset(name)
        assert list(_units(Situation(of.model, cluster, of.job, of.engine, of.job_request))) == []


def test_one_tier_over_several_nodes_is_named(make_situation: Make) -> None:
    """A node's links alone would join the nodes as fast as their inside."""
    of = make_situation("llama-3.2-1b", "dgx-a100", 8, seq_len=2048, global_batch=32)
    two = with_links(of, (300e9, 2e-6), (25e9, 5e-6)).cluster
    (group,) = two.groups
    cluster = cluster_from_spec(
        {
            "name": "ours",
            "groups": [group],
            "tiers": [{"name": "nvlink", "bytes_per_s": 300e9, "latency_s": 2e-6}],
        }
    )
    (warning,) = _units(Situation(of.model, cluster, of.job, of.engine, of.job_request))
    assert warning == "tier nvlink is the only one and joins 2 nodes; add a tier for the links between nodes"
