"""Counts of a whole model on one small enough to add up by hand."""

import pytest

from cost_models.readers import read_model
from cost_models.specs.counts import (
    count_parameters,
    forward_flops,
    forward_flops_per_token,
    layer_parameters,
    sequence_shard,
)
from cost_models.specs.model import ModelSpec

HIDDEN, VOCAB, WIDTH, EXPERTS, TOP_K = 8, 100, 16, 4, 2
ATTENTION = 4 * HIDDEN * HIDDEN
EXPERT = 3 * HIDDEN * WIDTH


def small(**keys: object) -> ModelSpec:
    layers = [
        {
            "kind": "routed",
            "count": 3,
            "attention": {"heads": 2, "head_dim": 4},
            "moe": {"experts": EXPERTS, "top_k": TOP_K, "width": WIDTH},
        }
    ]
    return read_model(
        {"layers_file": 1, "hidden_size": HIDDEN, "vocab_size": VOCAB, "layers": layers, **keys}
    )


def test_every_count_by_hand():
    counts = count_parameters(small())
    layer = ATTENTION + EXPERTS * EXPERT + HIDDEN * EXPERTS + 2 * HIDDEN
    assert layer_parameters(small().kinds["routed"]) == layer
    assert counts.parameters == counts.trainable == 2 * VOCAB * HIDDEN + HIDDEN + 3 * layer
    assert counts.active == counts.parameters - 3 * (EXPERTS - TOP_K) * EXPERT
    assert counts.embedding == VOCAB * HIDDEN
    assert counts.mtp == 0
    assert counts.matmul == 3 * (ATTENTION + TOP_K * EXPERT + HIDDEN * EXPERTS) + VOCAB * HIDDEN


def test_a_tie_counts_once_but_multiplies():
    tied, untied = count_parameters(small(tied_embeddings=True)), count_parameters(small())
    assert untied.parameters - tied.parameters == VOCAB * HIDDEN
    assert untied.matmul == tied.matmul


@pytest.mark.parametrize("seq_len", [16, 256])
def test_forward_flops_are_two_a_matmul_parameter_plus_attention(seq_len):
    model = small()
    attention = 3 * 2 * 2 * (4 + 4) * seq_len / 2
    assert forward_flops_per_token(model, seq_len) == 2 * count_parameters(model).matmul + attention
    assert forward_flops(model, seq_len) == seq_len * forward_flops_per_token(model, seq_len)


def test_the_shard_of_a_sequence_takes_the_length_of_its_stack():
    t5 = read_model({"model_type": "t5"})
    encoder = sequence_shard(t5, "encoder", 512, 128)
    decoder = sequence_shard(t5, "decoder", 512, 128)
    assert (encoder.seq_len, encoder.context_len) == (512, 0)
    assert (decoder.seq_len, decoder.context_len) == (128, 512)
