"""First values depend on the seed and the global name alone."""

import torch

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions, ChunkCut
from tests.planner.executor.model.configs import CASES


def test_a_chunk_starts_as_the_same_layers_of_the_whole() -> None:
    model = read_model(CASES["llama tied"], name="llama")
    every = build_chunk(model, whole(model), BuildOptions(seed=3)).state_dict()
    last = build_chunk(model, ChunkCut(False, True, 1, 2), BuildOptions(seed=3)).state_dict()
    assert set(last) == {name for name in every if name.split(".")[1] in ("2", "3")}
    for name, value in last.items():
        assert torch.equal(value, every[name]), name


def test_another_seed_gives_other_weights_but_the_same_norms() -> None:
    model = read_model(CASES["llama"], name="llama")
    one = build_chunk(model, whole(model), BuildOptions(seed=1)).state_dict()
    two = build_chunk(model, whole(model), BuildOptions(seed=2)).state_dict()
    assert not torch.equal(one["layers.1.proj.weight"], two["layers.1.proj.weight"])
    assert torch.equal(one["layers.1.attn_norm.weight"], torch.ones(64))
    assert torch.equal(two["layers.1.attn_norm.weight"], torch.ones(64))


def test_building_draws_nothing_from_the_global_generator() -> None:
    model = read_model(CASES["gpt2"], name="gpt2")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    build_chunk(model, whole(model), BuildOptions())
    assert torch.equal(before, torch.get_rng_state())


def test_tied_parameters_are_one_object_in_a_chunk() -> None:
    model = read_model(CASES["gpt2"], name="gpt2")
    chunk = build_chunk(model, whole(model), BuildOptions())
    table = chunk.get_parameter("layers.0.embedding.table")
    assert chunk.get_parameter("layers.3.logits.weight") is table
    assert "layers.3.logits.weight" not in dict(chunk.named_parameters())
