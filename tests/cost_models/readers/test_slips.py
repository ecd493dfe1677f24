"""Keys and values of a config that are one slip away from what was meant are refused, never read past."""

import pytest

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers import read_model

LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hiden_size", "hidden_size"),
        ("hidden_sizee", "hidden_size"),
        ("hidden_siez", "hidden_size"),
        ("Hidden-Size", "hidden_size"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("num_key_value_head", "num_key_value_heads"),
        ("vocab_sise", "vocab_size"),
    ],
)
def test_a_mistyped_size_is_no_default(given: str, meant: str) -> None:
    config = {given if key == meant else key: value for key, value in LLAMA.items()}
    with pytest.raises(
        InvalidModel, match=f"{given}, which nothing reads, and no {meant}; correct"
    ) as caught:
        read_model(config)
    assert caught.value.allowed == (meant,)


def test_absent_keys_and_unknown_keys_alone_are_no_slips() -> None:
    """An absent key is assumed and listed; a key of another program is read past."""
    config = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    model = read_model({**config, "vocabulary": 7, "layer_size": 3, "hidden_size_per_head": 64})
    assert {each.key: each.value for each in model.assumed}["vocab_size"] == "32000"


@pytest.mark.parametrize("function", ["swiglu", "SiLU", "", None, 3])
def test_an_activation_that_does_not_exist_is_refused(function: object) -> None:
    with pytest.raises(InvalidModel, match=r"hidden_act is .*; give one of gelu, .*silu"):
        read_model({**LLAMA, "hidden_act": function})


def test_an_empty_model_type_is_refused_with_the_ways_out() -> None:
    with pytest.raises(UnknownModelFamily, match="layers file"):
        read_model({**LLAMA, "model_type": ""})
