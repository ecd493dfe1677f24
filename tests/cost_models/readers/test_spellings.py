"""Other names of keys: read where the family's class knows them, refused where two disagree or one would be ignored."""

import pytest

from cost_models.errors import InvalidModel
from cost_models.readers import FAMILIES, read_model
from cost_models.readers.huggingface.spellings import ONE_THING, OTHER_NAMES
from cost_models.specs.counts import count_parameters
from planner.validation.oracle import oracle_rows

ROWS = {}
for each in oracle_rows():
    for other, own in OTHER_NAMES.get(each.model_type, {}).items():
        if each.config.get(own) is not None:
            ROWS.setdefault((each.model_type, other, own), each)


@pytest.mark.parametrize("names", sorted(ROWS), ids="-".join)
def test_a_key_counts_under_its_other_name(names):
    _, other, own = names
    row = ROWS[names]
    renamed = {other if key == own else key: value for key, value in row.config.items()}
    assert count_parameters(read_model(renamed)).parameters == row.parameters
    null = {**row.config, other: row.config[own]}
    assert count_parameters(read_model(null)).parameters == row.parameters


@pytest.mark.parametrize("names", sorted(ROWS), ids="-".join)
def test_two_names_that_disagree_are_an_error_that_names_both(names):
    _, other, own = names
    row = ROWS[names]
    value = row.config[own]
    different = (
        [*value, *value] if isinstance(value, list) else value + 1 if type(value) is int else not value
    )
    with pytest.raises(InvalidModel) as caught:
        read_model({**row.config, other: different})
    assert other in caught.value.detail and own in caught.value.detail


def test_every_family_of_other_names_is_read():
    assert set(OTHER_NAMES) <= set(FAMILIES)
    assert len({name for names in ONE_THING for name in names}) == sum(len(names) for names in ONE_THING)


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (
            {"model_type": "mixtral", "num_experts": 8, "num_local_experts": 16},
            ("num_experts", "num_local_experts"),
        ),
        (
            {"model_type": "qwen2_moe", "num_experts": 60, "n_routed_experts": 64},
            ("num_experts", "n_routed_experts"),
        ),
        ({"model_type": "llama", "hidden_size": 64, "n_embd": 128}, ("hidden_size", "n_embd")),
        # A name that the family does not read, in place of one that is absent.
        ({"model_type": "llama", "n_layer": 7}, ("n_layer", "num_hidden_layers")),
        ({"model_type": "qwen2_moe", "n_routed_experts": 64}, ("n_routed_experts", "num_experts")),
        (
            {"model_type": "llama", "layer_types": ["full_attention"] * 3, "num_hidden_layers": 4},
            ("layer_types", "num_hidden_layers"),
        ),
        (
            {
                "model_type": "llama",
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 4.0},
            },
            ("rope_scaling.factor", "rope_parameters.factor"),
        ),
        (
            {"model_type": "llama", "rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            ("rope_theta", "rope_parameters.rope_theta"),
        ),
        (
            {
                "model_type": "gemma3",
                "text_config": {"hidden_size": 64, "n_embd": 128},
            },
            ("hidden_size", "n_embd"),
        ),
    ],
)
def test_sizes_under_two_names_are_refused(config, keys):
    with pytest.raises(InvalidModel) as caught:
        read_model(config)
    assert all(key in caught.value.detail for key in keys)
    assert caught.value.pointer.startswith("/")


def test_equal_values_under_two_names_and_nulls_beside_them_are_fine():
    plain = read_model({"model_type": "llama", "num_hidden_layers": 2})
    both = read_model({"model_type": "llama", "num_hidden_layers": 2, "n_layer": 2, "n_embd": None})
    assert count_parameters(plain) == count_parameters(both)
    rope = {"type": "linear", "factor": 2.0}
    read_model({"model_type": "llama", "rope_scaling": rope, "rope_parameters": {**rope, "rope_theta": 1e4}})
