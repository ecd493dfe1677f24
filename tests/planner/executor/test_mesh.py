"""Ranks and coordinates of a strategy: placement follows the order of the axes; meshes agree with it."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from cost_models.errors import BadInput
from planner.executor.expert_mesh import expert_sizes, experts_stand_apart
from planner.executor.mesh import Coordinates, build_meshes, coordinates, mesh_ranks, rank_of
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]


def test_inner_axes_are_neighbours() -> None:
    # tp 2 inside dp 2x2 (shards inside replicas) inside pp 2: rank 13 = 1 + 2 * (0 + 2 * (1 + 2 * 1)).
    plan = strategy(tp=2, dp_shard=2, dp_replicate=2, pp=2)
    assert coordinates(plan, 13) == Coordinates(pp=1, replicate=1, shard=0, cp=0, tp=1)
    assert coordinates(plan, 2) == Coordinates(pp=0, replicate=0, shard=1, cp=0, tp=0)


def test_order_places_the_pipeline_inside() -> None:
    # pp innermost: ranks 0 and 1 are the two stages of one pipeline.
    plan = strategy(tp=2, pp=2, dp_shard=2, order=("pp", "tp", "cp", "ep", "dp"))
    assert [coordinates(plan, rank).pp for rank in range(4)] == [0, 1, 0, 1]
    assert [coordinates(plan, rank).tp for rank in range(4)] == [0, 0, 1, 1]


@pytest.mark.parametrize("order", list(permutations(("tp", "cp", "ep", "dp", "pp")))[::7])
def test_every_order_is_a_bijection(order: tuple[str, ...]) -> None:
    plan = strategy(tp=2, cp=3, pp=2, dp_shard=2, dp_replicate=3, order=order)
    assert [rank_of(plan, coordinates(plan, rank)) for rank in range(plan.world_size)] == list(range(72))
    assert sorted(mesh_ranks(plan)) == list(range(72))


def test_a_rank_outside_is_refused() -> None:
    with pytest.raises(BadInput, match="rank 2 is outside a world of 2; start one process per rank"):
        coordinates(strategy(dp_shard=2), 2)


def _mesh_facts(rank: int, world: int) -> list[Any]:
    import torch
    import torch.distributed as dist

    facts = []
    for plan in (
        strategy(dp_shard=2, dp_replicate=2),
        strategy(tp=2, pp=2, order=("pp", "tp", "cp", "ep", "dp")),
    ):
        meshes = build_meshes(plan, "cpu")
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=meshes.data_group)
        at = Coordinates(
            **{name: meshes.root.get_local_rank(name) for name in ("pp", "replicate", "shard", "cp", "tp")}
        )
        assert at == meshes.at == coordinates(plan, rank)
        facts.append((total.item(), meshes.data_rank, meshes.data_size, meshes.fsdp.ndim))
    return facts


def test_meshes_of_four_processes(run_ranks: RunRanks) -> None:
    results = run_ranks(_mesh_facts, 4)
    # HSDP: one data group of all four (0+1+2+3); tp x pp: every rank alone.
    assert [facts[0] for facts in results] == [(6.0, rank, 4, 2) for rank in range(4)]
    assert [facts[1] for facts in results] == [(float(rank), 0, 1, 1) for rank in range(4)]


def test_experts_divide_the_ranks_of_a_stage_from_the_inside() -> None:
    # tp 2 x cp 1 x dp 4 = 8 ranks of a stage: etp 2 inside ep 2 inside two replicas of the experts.
    assert expert_sizes(strategy(tp=2, dp_shard=4, ep=2, etp=2, pp=3)) == (3, 2, 2, 2)
    assert experts_stand_apart(strategy(tp=2)) is experts_stand_apart(strategy(dp_shard=2, ep=2)) is True
    # Held like everything else, they need no groups of their own; replicas of shards do not count for experts.
    assert experts_stand_apart(strategy(dp_shard=4, cp=2, pp=2)) is False
    assert experts_stand_apart(strategy(dp_shard=2, dp_replicate=2)) is True


def _expert_facts(rank: int, world: int) -> list[list[int]]:
    import torch.distributed as dist

    meshes = build_meshes(
        strategy(tp=2, pp=2, ep=2, order=("tp", "cp", "ep", "pp", "dp")), "cpu", routed=True
    )
    assert meshes.experts is not None
    groups = (meshes.experts.ep_group, meshes.experts.data_group, meshes.experts.etp_group)
    return [dist.get_process_group_ranks(group) for group in groups]


def test_expert_groups_of_four_processes(run_ranks: RunRanks) -> None:
    # Two stages of two tensor-parallel ranks each, which hold an expert half each and whole features.
    found = run_ranks(_expert_facts, 4)
    assert [facts[0] for facts in found] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [facts[1:] for facts in found] == [[[rank], [rank]] for rank in range(4)]


def _wrong_size(rank: int, world: int) -> str:
    try:
        build_meshes(strategy(dp_shard=4), "cpu")
    except BadInput as error:
        return str(error)
    return ""


def test_a_world_of_another_size_is_refused(run_ranks: RunRanks) -> None:
    message = "2 processes run a strategy of 4 ranks; start 4 processes"
    assert run_ranks(_wrong_size, 2) == [message, message]
