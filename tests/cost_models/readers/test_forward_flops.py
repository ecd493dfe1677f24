"""Forward model FLOPs of whole models, by hand: causal and windowed attention, cross-attention, prediction layers."""

from cost_models.operators import Attention
from cost_models.readers import load_model
from cost_models.specs.counts import forward_flops, forward_flops_per_token, sequence_shard
from cost_models.specs.model import ModelSpec


def attention_flops(model: ModelSpec, seq_len: int) -> float:
    return sum(
        layer.count * float(operator.model_flops(sequence_shard(model, layer.stack, seq_len)))
        for layer in model.layers
        if layer.role != "mtp"
        for operator in model.kinds[layer.kind].operators
        if isinstance(operator, Attention)
    )


def test_resnet_50_forward_flops():
    assert forward_flops(load_model("resnet-50")) == 8_178_368_512


def test_llama_forward_flops_by_hand():
    # 2 x 7,504,658,432 matmul parameters + 32 layers x 32 heads x 2 x 128 x 2 x 4096 tokens seen on average
    assert forward_flops_per_token(load_model("llama-3.1-8b"), 8192) == 2 * 7_504_658_432 + (
        32 * 32 * 2 * (128 + 128) * 4096
    )


def test_a_window_limits_attention():
    # Gemma 3 1B: 4 full layers of 26; a sliding one sees 512 keys less the start-up 512^2 / (2 x 8192) = 16
    model = load_model("gemma-3-1b")
    head_work = 2 * 4 * (256 + 256) * 8192
    assert attention_flops(model, 8192) == head_work * (4 * 4096 + 22 * (512 - 16))


def test_cross_attention_follows_the_encoder_length():
    # T5-3B: 24 decoder layers; keys and values of the encoder: 2 x 1024 x 2 x 4096 a position, attention
    # 2 x 32 heads x 256 a pair, besides the encoder's own work.
    model = load_model("t5-3b")
    short, long = (forward_flops(model, length, decoder_seq_len=128) for length in (512, 1024))
    encoder_linears = 24 * 2 * (4 * 1024 * 4096 + 2 * 1024 * 16384)
    encoder_attention = 24 * 2 * 32 * 256 * (1024**2 - 512**2)
    decoder = 24 * (2 * 1024 * 2 * 4096 * 512 + 2 * 32 * 256 * 128 * 512)
    assert long - short == encoder_linears * 512 + encoder_attention + decoder


def test_multi_token_prediction_is_counted_on_request():
    model = load_model("deepseek-v3")
    assert forward_flops(model, 4096, mtp=True) > forward_flops(model, 4096)
