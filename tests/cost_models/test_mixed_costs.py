"""A pipeline over several device groups: steps walked by hand, every rank as its own devices have it."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.chunk import StepRules
from cost_models.mixed_costs import MixedCosts, SharedPricer
from cost_models.profiles import cluster_from_spec
from cost_models.schedule import ScheduleName
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from cost_models.step import step_costs
from planner.evaluation import Context, complete_legal, evaluate
from planner.request import CatalogModel
from planner.situation import Situation, resolve_model, situate
from tests.planner.search.builders import Shape, large_mesh

GROUPS = [("a100", "a100-sxm-80gb", 2), ("h100", "h100-sxm-80gb", 2)]
FABRIC = {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6}
WAN = {"name": "ethernet wan", "bytes_per_s": 1e9, "latency_s": 0.03}


def situation(groups=GROUPS, outer=FABRIC, *, engine="megatron", precision="bf16") -> Situation:
    raw = {
        "name": "several",
        "groups": [
            {"name": name, "device": device, "nodes": nodes, "devices_per_node": 8}
            for name, device, nodes in groups
        ],
        "tiers": [{"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6}, outer],
    }
    job = JobRequest(seq_len=4096, global_batch=64, engine=engine, precision=precision)
    return situate(resolve_model(CatalogModel(name="llama-3.1-8b")), cluster_from_spec(raw), job)


def mesh_of(of: Situation, text: str):
    context = Context.of(of)
    return context.mesh_of(complete_legal(context, parse_strategy(text)))


def two_ranks(link_s: float, micro_batches: int, slower: float) -> MixedCosts:
    """Two ranks of one block, embedding and head free: forward 1, backward 2 on rank 0, `slower` times on rank 1."""
    mesh = large_mesh(Shape(ScheduleName.ONE_F_ONE_B, 2, 1, micro_batches, 2))
    ones = np.array([0.0, 1.0, 1.0, 0.0])
    parts = np.zeros((6, 4))
    zero = np.zeros(4)
    forward, backward = parts.copy(), parts.copy()
    forward[0], backward[0] = ones, 2 * ones
    table = replace(
        mesh.table, forward_parts_s=forward, backward_parts_s=backward, sync_s=zero, gather_s=zero
    )
    table = replace(table, optimizer_s=zero)
    slow = replace(table, forward_parts_s=slower * forward, backward_parts_s=slower * backward)
    own = [replace(mesh, table=one, rules=StepRules()) for one in (table, slow)]
    fields = {
        name: getattr(own[0], name)
        for name in ("schedule", "pp", "vpp", "num_micro_batches", "table", "rules")
    }
    places = {"part_of_rank": (0, 1), "pool_of_rank": (0, 1), "seconds_of_link": (link_s, 0.0)}
    return MixedCosts(**fields, parts=tuple(own), **places)


def test_one_micro_batch_goes_down_and_up_by_hand():
    # Down 1 + 10 + 3, up 6 + 10 + 2.
    assert step_costs(two_ranks(10.0, 1, 3.0), (1, 1), (0, 0)).step_s == 32.0


def test_the_slow_rank_sets_the_pace():
    # Rank 1 takes 9 s for each of 4 micro-batches, 1 s after the start, and rank 0 has 2 s left behind it.
    assert step_costs(two_ranks(0.0, 4, 3.0), (1, 1), (0, 0)).step_s == 1.0 + 4 * 9.0 + 2.0


def test_ranks_compute_and_remember_as_on_a_cluster_of_their_own():
    mixed = mesh_of(situation(), "tp=8,pp=4,groups=a100*2+h100*2")
    for name, device, ranks in (("a100", "a100-sxm-80gb", (0, 1)), ("h100", "h100-sxm-80gb", (2, 3))):
        alone = mesh_of(situation([(name, device, 2), ("b", "l4", 2)]), f"tp=8,pp=2,groups={name}")
        for rank in ranks:
            own = mixed.of_rank(rank)
            for field in (
                "forward_parts_s",
                "backward_parts_s",
                "static_parts_bytes",
                "saved_bytes",
                "optimizer_s",
            ):
                found, expected = getattr(own.table, field), getattr(alone.table, field)
                assert found == pytest.approx(expected, rel=1e-12), field
    limits = [mixed.of_rank(rank).rules.allocated_limit_bytes for rank in range(4)]
    assert limits[0] == limits[1] < limits[2] == limits[3]  # 79.15 and 79.18 GiB


def test_links_inside_a_group_and_between_two_by_hand():
    # A boundary tensor of 4,096 x 4,096 x 2 bytes, in 8 parts with sequence parallel, is 4.19 MB a device: 0.17 ms
    # over 25 GB/s and 4.2 ms over 1 GB/s, at the share of the rate that a send reaches, beside 30 ms to start.
    near, far = (mesh_of(situation(outer=outer), "tp=8,pp=4,groups=a100*2+h100*2") for outer in (FABRIC, WAN))
    payload = 4096 * 4096 * 2 / 8
    assert near.link_s[0] == pytest.approx(near.link_s[1], rel=1e-12)
    assert payload / 2.5e10 < near.link_s[1] < 2.0 * payload / 2.5e10
    assert 0.03 + payload / 1e9 < far.link_s[1] < 0.09 + 2.0 * payload / 1e9
    inside = mesh_of(situation(outer=FABRIC), "tp=8,pp=2,groups=a100/h100*2")
    assert inside.link_s is None


def test_only_the_ranks_beside_a_slow_link_wait_for_it():
    mesh = mesh_of(situation(outer=WAN), "tp=8,pp=4,groups=a100*2+h100*2")
    shown = [
        (mesh.of_rank(r).rules.chunk_forward_s, mesh.of_rank(r).rules.chunk_backward_s) for r in range(4)
    ]
    slow = shown[1][0]
    assert shown[2][1] == slow > 0.0
    assert mesh.link_s[1] == pytest.approx(max(mesh.link_s[:3]))
    assert shown[0][0] == shown[0][1] == shown[1][1]
    assert shown[3][0] == shown[3][1]


def test_groups_that_share_ranks_run_at_the_pace_of_the_slowest():
    text = "tp=8,pp=2,dp=2"
    shared = mesh_of(situation(), f"{text},groups=a100/h100*2")
    slow, fast = (
        mesh_of(situation([(name, device, 4), ("b", "l4", 4)]), f"{text},groups={name},order=tp-cp-ep-pp-dp")
        for name, device, _ in GROUPS
    )
    assert shared.table.forward_parts_s[0] == pytest.approx(slow.table.forward_parts_s[0], rel=1e-12)
    assert (shared.table.forward_parts_s[0] > fast.table.forward_parts_s[0]).all()
    assert shared.rules.allocated_limit_bytes == slow.rules.allocated_limit_bytes
    assert isinstance(Context.of(situation()).pools.pricer(("a100", "h100")), SharedPricer)


def test_rates_count_the_devices_in_use_with_their_own_peaks():
    # 16 A100 of 312 and 16 H100 of 989.4 TFLOP/s: the mean peak is 650.7.
    of = situation()
    both, one = (evaluate(of, parse_strategy(text)) for text in ("tp=8,pp=4", "tp=8,pp=2,groups=h100*2"))
    assert both.mfu == pytest.approx(both.model_flops_per_s_per_device / 650.7e12, rel=1e-3)
    assert one.mfu == pytest.approx(one.model_flops_per_s_per_device / 989.4e12, rel=1e-3)
    assert one.tokens_per_s_per_device == pytest.approx(64 * 4096 / one.step_s / 16, rel=1e-12)
    assert any("16 devices of group a100 are left unused" in warning for warning in one.warnings)
