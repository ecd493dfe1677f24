"""What a block keeps where positions or experts are divided over two ranks is what the cost model says, to 2 %."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators.base import Shard
from cost_models.readers import read_model
from cost_models.specs.model import Role
from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.expert_parallel import Balance, ExpertParallel
from planner.executor.model.options import BuildOptions
from tests.planner.executor.model.configs import CASES
from tests.planner.executor.model.test_saved import POSITIONS, SEQUENCES, STYLE, kept_bytes

KINDS = ("ring", "allgather", "ulysses")
MODELS = ("llama", "deepseek v3")
ROUTED = "mixtral"


def predicted_bytes(case: str, cp_kind: str = "ring", **shard: int) -> float:
    """The cost model's bytes of the first block; experts compute their activation again, copies fill the capacity."""
    model = read_model(CASES[case], name=case)
    kind = model.kinds[model.expanded(Role.BLOCK)[0].kind]
    style = replace(STYLE, experts_run_again=True, expert_capacity_factor=1.0, cp_kind=cp_kind)
    at = Shard(sequences=SEQUENCES, seq_len=POSITIONS, context_len=0, **shard)
    tensors = saved_tensors(kind.operators, at, style, Dropped())
    return sum(float(size) for _, size in tensors.values())


def _kept(rank: int, world: int) -> dict[str, int]:
    torch.manual_seed(0)
    found = {}
    for kind in KINDS:
        context = ContextParallel(dist.group.WORLD, world, rank, kind)
        for case in MODELS:
            options = BuildOptions(context=context)
            found[f"{case} {kind}"] = kept_bytes(CASES[case], options, length=POSITIONS // world)
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("ep", "etp"))
    experts = ExpertParallel(mesh, ep=world, ep_rank=rank, balance=Balance(capacity=1.0))
    found[ROUTED] = kept_bytes(CASES[ROUTED], BuildOptions(experts=experts))
    return found


def test_divided_blocks_keep_what_is_predicted(run_ranks: Callable[..., list[Any]]) -> None:
    for kept in run_ranks(_kept, 2):
        for kind in KINDS:
            for case in MODELS:
                expected = pytest.approx(predicted_bytes(case, kind, cp=2), rel=0.02)
                assert kept[f"{case} {kind}"] == expected, (case, kind)
        assert kept[ROUTED] == pytest.approx(predicted_bytes(ROUTED, ep=2), rel=0.02)
