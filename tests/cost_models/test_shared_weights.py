"""Blocks that share weights: stored once, run as often as they stand in the model."""

from cost_models.readers import read_model
from cost_models.rows import model_rows
from cost_models.specs.job import JobRequest, resolve_job
from cost_models.specs.model import Role
from cost_models.states import row_groups

ALBERT = {
    "model_type": "albert",
    "vocab_size": 100,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "intermediate_size": 64,
}


def stored(config: dict[str, object]) -> list[int]:
    """Elements that each block of the model stores on one stage."""
    model = read_model(config)
    rows = model_rows(model, resolve_job(JobRequest(seq_len=16, global_batch=1), model))
    sums = [sum(group.elements * count for group, count in row_groups(row)) for row in rows.rows]
    return [sums[index] for index in rows.blocks]


def test_one_group_is_stored_in_its_first_layer():
    # attention 4 x (32 x 32 + 32) = 4,224; feed-forward 2 x 32 x 64 + 64 + 32 = 4,192; norms 2 x 64 = 128
    assert stored(ALBERT) == [8_544, 0, 0, 0, 0]


def test_two_groups_are_stored_in_the_first_layer_of_each():
    # layer i belongs to group int(i / (5 / 2)): 0 0 0 1 1
    assert stored({**ALBERT, "num_hidden_groups": 2}) == [8_544, 0, 0, 8_544, 0]


def test_every_run_computes():
    model = read_model(ALBERT)
    assert sum(layer.count for layer in model.layers if layer.role is Role.BLOCK) == 5
    assert model.num_blocks == 5
