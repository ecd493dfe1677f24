"""What a block keeps for its backward pass is what the cost model says, with recomputation and without."""

import gc
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators.base import Shard, Style
from cost_models.readers import read_model
from cost_models.specs.model import Role
from planner.executor.model.build import build_chunk
from planner.executor.model.options import BuildOptions, ChunkCut
from planner.executor.model.tensor_parallel import local
from tests.planner.executor.model.configs import CASES, Config

SEQUENCES, POSITIONS, BYTES = 2, 64, 4.0
SETTLED_S = 0.3
STYLE = Style(
    fused_activation=False,
    sp_saves_shard=False,
    router_fp32=False,
    compute_bytes=BYTES,
    dropout=False,
)


class Made(TorchDispatchMode):
    """Every storage that an operator made, held weakly; views of parameters and of the input are none."""

    def __init__(self, *outside: Tensor) -> None:
        super().__init__()
        self.outside = {tensor.untyped_storage().data_ptr() for tensor in outside}
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.outside:
                    self.storages[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        return out

    def live_bytes(self) -> int:
        """Bytes of those that are still there."""
        return sum(size for reference, size in self.storages.values() if not reference.expired())


def kept_bytes(config: Config, options: BuildOptions, block: int = 0, length: int = POSITIONS) -> int:
    """Bytes that one block of the model keeps alive after its forward, its input included and its output not."""
    model = read_model(config, name="tiny")
    chunk = build_chunk(model, ChunkCut(False, False, block, block + 1), options)
    x = torch.randn(SEQUENCES, length, model.hidden_size, requires_grad=True)
    chunk(x)  # makes the tables that all layers share
    with Made(x, *map(local, chunk.parameters())) as made:
        output = chunk(x)
    gc.collect()
    if dist.is_initialized():  # gloo's threads let go of what they sent a moment after it has arrived
        time.sleep(SETTLED_S)
    return made.live_bytes() - output.untyped_storage().nbytes() + x.untyped_storage().nbytes()


def _predicted(config: Config, scopes: tuple[str, ...] = (), block: int = 0) -> float:
    model = read_model(config, name="tiny")
    kind = model.kinds[model.expanded(Role.BLOCK)[block].kind]
    chosen = [scope for scope in kind.scopes if scope.name in scopes]
    again = frozenset(name for scope in chosen for name in scope.operators)
    given_up = frozenset(name for scope in chosen for name in scope.gives_up)
    at = Shard(sequences=SEQUENCES, seq_len=POSITIONS, context_len=0)
    tensors = saved_tensors(kind.operators, at, STYLE, Dropped(again, given_up))
    return sum(float(size) for _, size in tensors.values())


def test_llama_keeps_what_is_predicted() -> None:
    assert kept_bytes(CASES["llama"], BuildOptions()) == _predicted(CASES["llama"])


def test_gpt2_keeps_nothing_inside_its_activation() -> None:
    assert kept_bytes(CASES["gpt2"], BuildOptions()) == _predicted(CASES["gpt2"])


def test_full_recomputation_keeps_the_input_alone() -> None:
    options = BuildOptions(full_layers=1)
    assert kept_bytes(CASES["llama"], options) == SEQUENCES * POSITIONS * 64 * BYTES


@pytest.mark.parametrize(
    "scopes",
    [("core_attn",), ("mlp",), ("layernorm",), ("layernorm", "mlp"), ("core_attn", "layernorm", "mlp")],
)
def test_scopes_keep_what_is_predicted(scopes: tuple[str, ...]) -> None:
    assert kept_bytes(CASES["llama"], BuildOptions(scopes=scopes)) == _predicted(CASES["llama"], scopes)


@pytest.mark.parametrize(
    ("case", "scopes", "full_layers"),
    [
        ("qwen3", ("core_attn", "mlp"), 1),
        ("llama", ("layernorm",), 0),
        ("llama", ("layernorm", "mlp"), 0),
        ("mixtral", ("moe_act", "layernorm"), 0),
        ("mixtral", ("moe",), 0),
        ("deepseek v3", ("mla_up_proj", "layernorm", "shared_experts"), 0),
    ],
)
def test_recomputation_changes_no_gradient(case: str, scopes: tuple[str, ...], full_layers: int) -> None:
    model = read_model(CASES[case], name="tiny")
    gradients = []
    for options in (BuildOptions(), BuildOptions(full_layers=full_layers, scopes=scopes)):
        chunk = build_chunk(model, ChunkCut(False, False, 0, 2), options)
        torch.manual_seed(0)
        chunk(torch.randn(2, 8, 64)).square().sum().backward()
        gradients.append([p.grad for p in chunk.parameters() if p.grad is not None])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))
    assert len(gradients[0]) == len(list(chunk.parameters()))
