"""A model divided over tensor-parallel ranks has the loss and the gradients of the whole one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.expert_parallel import ExpertParallel
from planner.executor.model.options import BuildOptions
from planner.executor.model.tensor_parallel import TensorParallel, is_partial
from tests.planner.executor.model.configs import CASES

GRADIENTS = 1e-5
LOSS = 1e-6
# A key's bias moves all scores of a query alike: its gradient is nothing but rounding of the others'.
NEGLIGIBLE = 1e-4
VOCABULARY = 65  # not divisible by 2, so the last row of the last rank is padding
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recomputed": {
        "scopes": ("core_attn", "mlp", "moe", "layernorm"),
        "full_layers": 1,
        "cross_entropy_chunks": 3,
    },
    "unfused": {"attention": "unfused", "fused_cross_entropy": True},
}
FEW = ("llama", "gpt2", "deepseek v3")
MOE = ("qwen2 moe",)
MANY = ("qwen3", "gemma2", "gpt neox", "bloom", "bert", "gpt oss", "olmo2", "starcoder2", "opt", "mixtral")


def _model(case: str) -> Any:
    return read_model(CASES[case] | {"vocab_size": VOCABULARY}, name=case)


def _reference(case: str, ids: torch.Tensor, targets: torch.Tensor) -> tuple[float, dict[str, torch.Tensor]]:
    model = _model(case)
    chunk = build_chunk(model, whole(model), BuildOptions())
    loss = chunk(ids, targets)
    loss.backward()
    return float(loss.detach()), {name: p.grad for name, p in chunk.named_parameters() if p.grad is not None}


def _experts(rank: int, sizes: tuple[int, int]) -> ExpertParallel:
    """This rank's place in an (ep, etp) mesh over all ranks."""
    if sizes == (1, 1):
        return ExpertParallel()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("ep", "etp"))
    return ExpertParallel(mesh, *sizes, *divmod(rank, sizes[1]))


def _whole_gradients(chunk: ChunkModule) -> dict[str, torch.Tensor]:
    found = {}
    for name, parameter in chunk.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        if not isinstance(gradient, DTensor):  # experts that each rank has whole, of its own tokens
            dist.all_reduce(gradient)
            found[name] = gradient
            continue
        if is_partial(parameter):
            dist.all_reduce(gradient.to_local())
        rows = getattr(parameter, "unpadded_rows", parameter.shape[0])
        found[name] = gradient.full_tensor()[:rows]
    return found


def _divided(
    rank: int, world: int, cases: tuple[str, ...], sequence: bool, experts: tuple[int, int] = (1, 1)
) -> list[str]:
    """What differs by more than the limits, over the cases and all variants."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    shared = _experts(rank, experts)
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (2, 32))
    targets = torch.randint(VOCABULARY, (2, 32))
    targets[0, :5] = -100
    wrong = []
    for case in cases:
        expected_loss, expected = _reference(case, ids, targets)
        floor = NEGLIGIBLE * max(float(gradient.abs().max()) for gradient in expected.values())
        for label, options in VARIANTS.items():
            tp = TensorParallel(mesh, world, rank, sequence)
            built = BuildOptions(tensor_parallel=tp, experts=shared, **options)
            chunk = build_chunk(_model(case), whole(_model(case)), built)
            loss = chunk(ids, targets)
            loss.backward()
            if abs(float(loss.detach()) / expected_loss - 1.0) > LOSS:
                wrong.append(f"{case} {label} loss")
            for name, gradient in _whole_gradients(chunk).items():
                scale = max(float(expected[name].abs().max()), floor)
                difference = float((gradient - expected[name]).abs().max()) / scale
                if not difference <= GRADIENTS:
                    wrong.append(f"{case} {label} {name} {difference:.1e}")
    return wrong


def test_equals_one_process(run_ranks: Callable[..., list[Any]]) -> None:
    assert run_ranks(_divided, 2, FEW, False) == [[], []]


def test_equals_one_process_with_sequence_parallelism(run_ranks: Callable[..., list[Any]]) -> None:
    assert run_ranks(_divided, 2, FEW, True) == [[], []]


def test_experts_divided_inside_equal_one_process(run_ranks: Callable[..., list[Any]]) -> None:
    assert run_ranks(_divided, 2, MOE, True, (1, 2)) == [[], []]


def test_experts_on_other_ranks_equal_one_process(run_ranks: Callable[..., list[Any]]) -> None:
    assert run_ranks(_divided, 2, MOE, False, (2, 1)) == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [False, True])
def test_many_families_equal_one_process(run_ranks: Callable[..., list[Any]], sequence: bool) -> None:
    assert run_ranks(_divided, 2, MANY, sequence, timeout_s=300.0) == [[], []]
    for experts in ((1, 2), (2, 1)):
        cases = (*MOE, "mixtral", "gpt oss")
        assert run_ranks(_divided, 2, cases, sequence, experts, timeout_s=300.0) == [[], []]


def _shapes(rank: int, world: int) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    options = BuildOptions(tensor_parallel=TensorParallel(mesh, world, rank, sequence=True))
    chunk = build_chunk(_model("llama"), whole(_model("llama")), options)
    names = ("layers.0.embedding.table", "layers.1.qkv.k", "layers.1.down.weight", "layers.1.mlp_norm.weight")
    local = {}
    for name in names:
        parameter = chunk.get_parameter(name)
        assert isinstance(parameter, DTensor)
        local[name] = tuple(parameter.to_local().shape)
    boundary = chunk.layers["0"](torch.zeros(2, 32, dtype=torch.int64))
    return tuple(boundary.shape), local


def test_shards_and_boundary(run_ranks: Callable[..., list[Any]]) -> None:
    # 65 rows are padded to 66, 33 a rank; 4 key heads x 8 = 32 rows; 96 columns; norms are whole;
    # the boundary holds half of the 32 positions.
    expected = {
        "layers.0.embedding.table": (33, 64),
        "layers.1.qkv.k": (16, 64),
        "layers.1.down.weight": (64, 48),
        "layers.1.mlp_norm.weight": (64,),
    }
    assert run_ranks(_shapes, 2) == [((2, 16, 64), expected)] * 2
