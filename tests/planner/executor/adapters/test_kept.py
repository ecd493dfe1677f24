"""What adapted blocks keep for their backward is what the cost model says."""

import gc

import pytest
import torch

from cost_models.fine_tuning import fine_tuned, without_adapters
from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators.base import Shard
from cost_models.readers import read_model
from cost_models.specs.model import Role
from cost_models.specs.trainable import parse_trainable
from planner.executor.adapters.attach import attach
from planner.executor.adapters.pairs import AdapterOptions
from planner.executor.model.build import build_chunk
from planner.executor.model.options import BuildOptions, ChunkCut
from tests.planner.executor.model.configs import CASES
from tests.planner.executor.model.test_saved import POSITIONS, SEQUENCES, STYLE, Made

BLOCK = 1


def kept_bytes(model, trainable, scopes):
    base = without_adapters(model)
    options = BuildOptions(scopes=scopes)
    chunk = build_chunk(base, ChunkCut(False, False, BLOCK, BLOCK + 1), options)
    attach(chunk, model, options, AdapterOptions(trainable.targets))
    x = torch.randn(SEQUENCES, POSITIONS, model.hidden_size, requires_grad=True)
    chunk(x)
    with Made(x, *chunk.parameters()) as made:
        output = chunk(x)
    gc.collect()
    return made.live_bytes() - output.untyped_storage().nbytes() + x.untyped_storage().nbytes()


def predicted_bytes(model, scopes):
    kind = model.kinds[model.expanded(Role.BLOCK)[BLOCK].kind]
    chosen = [scope for scope in kind.scopes if scope.name in scopes]
    again = frozenset(name for scope in chosen for name in scope.operators)
    given_up = frozenset(name for scope in chosen for name in scope.gives_up)
    at = Shard(sequences=SEQUENCES, seq_len=POSITIONS, context_len=0)
    tensors = saved_tensors(kind.operators, at, STYLE, Dropped(again, given_up))
    return sum(float(size) for _, size in tensors.values())


@pytest.mark.parametrize(
    ("case", "text", "scopes"),
    [
        ("llama", "lora:r=4", ()),
        ("llama", "lora:r=4,targets=q+v", ()),
        ("llama", "lora:r=4", ("mlp",)),
        ("llama", "lora:r=4,targets=down", ("core_attn", "mlp")),
        ("gpt2", "lora:r=8", ()),
        ("gpt2", "lora:r=8,targets=proj", ()),
    ],
)
def test_an_adapted_block_keeps_what_is_predicted(case, text, scopes):
    trainable = parse_trainable(text)
    model = fine_tuned(read_model(CASES[case], name="tiny"), trainable)
    assert kept_bytes(model, trainable, scopes) == predicted_bytes(model, scopes)
