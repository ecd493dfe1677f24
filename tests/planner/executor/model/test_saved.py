"""What a block keeps for its backward pass is what the cost model says, with recomputation and without."""

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators.base import Shard, Style
from cost_models.readers import read_model
from planner.executor.model.build import build_chunk
from planner.executor.model.options import BuildOptions, ChunkCut
from tests.planner.executor.model.configs import BASE, CASES, Config

SEQUENCES, POSITIONS, BYTES = 2, 64, 4.0
STYLE = Style(
    fused_activation=False,
    sp_saves_shard=False,
    router_fp32=False,
    compute_bytes=BYTES,
    dropout=False,
)
# cosines and sines of 4 pairs x positions, shared by all layers of a chunk
TABLES = 2 * 4 * POSITIONS * 4


def _kept(config: Config, options: BuildOptions) -> int:
    """Bytes of the distinct storages that one block of the model keeps, without its parameters."""
    model = read_model(config, name="tiny")
    chunk = build_chunk(model, ChunkCut(False, False, 0, 1), options)
    own = {parameter.untyped_storage().data_ptr() for parameter in chunk.parameters()}
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        # The tensor is held, so that no storage is used twice.
        found[tensor.untyped_storage().data_ptr()] = tensor.detach()
        return tensor

    x = torch.randn(SEQUENCES, POSITIONS, model.hidden_size, requires_grad=True)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = chunk(x)
    output.sum().backward()
    return sum(t.untyped_storage().nbytes() for pointer, t in found.items() if pointer not in own)


def _predicted(config: Config) -> float:
    model = read_model(config, name="tiny")
    kind = model.kinds[next(layer.kind for layer in model.layers if layer.role == "block")]
    at = Shard(sequences=SEQUENCES, seq_len=POSITIONS, context_len=0)
    tensors = saved_tensors(kind.operators, at, STYLE, Dropped())
    return sum(float(size) for _, size in tensors.values())


def test_llama_keeps_what_is_predicted() -> None:
    assert _kept(CASES["llama"], BuildOptions()) == _predicted(CASES["llama"]) + TABLES


def test_gpt2_keeps_nothing_inside_its_activation() -> None:
    # The prediction holds 3 x 4 x hidden a position that GELU written in plain operators keeps; one kernel does not.
    inner = SEQUENCES * POSITIONS * 3 * 256 * BYTES
    assert _kept(CASES["gpt2"], BuildOptions()) == _predicted(CASES["gpt2"]) - inner


def test_full_recomputation_keeps_the_input_alone() -> None:
    options = BuildOptions(full_layers=1)
    assert _kept(CASES["llama"], options) == SEQUENCES * POSITIONS * 64 * BYTES


@pytest.mark.parametrize("scope", ["core_attn", "mlp"])
def test_scopes_keep_less(scope: str) -> None:
    # core_attn drops the output's log-sum-exp (8 heads) and keeps its inputs; mlp drops 4 x 96 a position.
    dropped = {"core_attn": 8, "mlp": 4 * 96}[scope] * SEQUENCES * POSITIONS * BYTES
    less = _kept(CASES["llama"], BuildOptions()) - _kept(CASES["llama"], BuildOptions(scopes=(scope,)))
    assert less == dropped


def test_recomputation_changes_no_gradient() -> None:
    config = BASE | {"model_type": "qwen3", "head_dim": 16}
    model = read_model(config, name="tiny")
    gradients = []
    for options in (BuildOptions(), BuildOptions(full_layers=1, scopes=("core_attn", "mlp"))):
        chunk = build_chunk(model, ChunkCut(False, False, 0, 2), options)
        torch.manual_seed(0)
        chunk(torch.randn(2, 8, 64)).square().sum().backward()
        gradients.append([p.grad for p in chunk.parameters() if p.grad is not None])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))
    assert len(gradients[0]) == len(list(chunk.parameters()))
