"""Recompute operator by operator: which outputs of a layer stay."""

import pytest

from cost_models.dropped import drop_per_operator
from cost_models.layer_walk import dropped_by, saved_tensors, walk_layer
from cost_models.operators.base import Phase, Shard, Style
from cost_models.profiles import model_config
from cost_models.readers import read_model

ONE = Shard(1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def block():
    return read_model(model_config("llama-3.1-8b"), name="llama").kinds["dense"]


def test_every_odd_product_and_attention_stay(block):
    """Products in order: q, k, v, out, gate, up, down. Kept: q 4096, v 1024, gate 14336, down 4096, attention 4096.

    With the layer's input that is 31,744 bf16 elements a token, and 32 fp32 log-sums of attention.
    """
    kept = saved_tensors(block.operators, ONE, Style(), drop_per_operator(block.operators))
    assert {name: float(size) for name, (_, size) in kept.items()} == {
        "x": 2 * 4096.0,
        "q": 2 * 4096.0,
        "v": 2 * 1024.0,
        "core_attention": 2 * 4096.0,
        "core_attention.lse": 4 * 32.0,
        "gate_up": 2 * 14_336.0,
        "down": 2 * 4096.0,
    }


def test_products_that_stay_do_not_run_again(block):
    """Shares that run again: k of q, k, v is 1/6; out all; up one half of gate and up; down nothing."""
    dropped = dropped_by(block, ("per_op",))
    shares = {op.name: dropped.share_again(op) for op in block.operators}
    linears = {name: shares[name] for name in ("qkv", "proj", "gate_up", "down")}
    assert linears == pytest.approx({"qkv": 1 / 6, "proj": 1.0, "gate_up": 0.5, "down": 0.0})
    assert (shares["core_attention"], shares["act"], shares["mlp_norm"]) == (0.0, 1.0, 1.0)
    walk = walk_layer(block, ONE, Style(), ("per_op",))
    again = [
        share
        for kernel, share in zip(walk.kernels, walk.kernel_again, strict=True)
        if kernel.phase is Phase.FORWARD
    ]
    assert len(again) >= len(block.operators)


def test_it_keeps_more_than_full_and_less_than_none(block):
    full = walk_layer(block, ONE, Style(), ()).full.saved_bytes
    none = walk_layer(block, ONE, Style(), ()).base.saved_bytes
    per_op = walk_layer(block, ONE, Style(), ("per_op",)).base.saved_bytes
    assert full < per_op < none


def test_an_embedding_has_nothing_to_drop():
    model = read_model(model_config("llama-3.1-8b"), name="llama")
    assert not dropped_by(model.kinds["embedding"], ("per_op",)).again
