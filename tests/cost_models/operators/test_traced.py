"""Traced work: polynomials of the length, halves of causal pairs, areas of images."""

import numpy as np
import pytest

from cost_models.operators import Traced
from cost_models.operators.base import DtypeRole, Phase, Shard, Style
from cost_models.operators.traced import Growth

WORK = Traced(
    name="work",
    weights=100,
    vectors=7,
    matmuls=2,
    columns=8.0,
    depth=16.0,
    flops=Growth(constant=5.0, linear=200.0, quadratic=4.0),
    causal=1.0,
    moved=Growth(linear=30.0),
    launches=3.0,
    kept={DtypeRole.COMPUTE: Growth(linear=11.0), DtypeRole.FP32: Growth(quadratic=2.0)},
    reads={"core_attention": 6.0},
    width=9.0,
)
AT = Shard(sequences=2.0, seq_len=10.0, context_len=0.0)


def test_model_flops_halve_what_is_causal():
    # 2 sequences x (5 + 200 x 10 + 4 x 100 / 2)
    assert WORK.model_flops(AT) == 2 * (5 + 2000 + 200)
    assert WORK.model_copy(update={"causal": 0.0}).model_flops(AT) == 2 * (5 + 2000 + 400)
    assert WORK.model_copy(update={"causal": 0.5}).model_flops(AT) == 2 * (5 + 2000 + 300)


def test_kernels_repeat_products_backward():
    flops = dict.fromkeys(Phase, 0.0)
    for kernel in WORK.kernels(AT, Style()):
        flops[kernel.phase] += kernel.flops
    plain, pairs = 2 * 2005.0, 2 * 400.0
    assert flops == {
        Phase.FORWARD: plain + pairs,
        Phase.INPUT_GRADIENT: plain + 2 * pairs,  # two products a pair and no weight
        Phase.WEIGHT_GRADIENT: plain,
    }
    memory = [kernel for kernel in WORK.kernels(AT, Style()) if not kernel.flops]
    assert [kernel.bytes for kernel in memory] == [2 * 300 * 2.0, 2 * 2 * 300 * 2.0]
    assert [kernel.count for kernel in memory] == [3.0, 6.0]


def test_it_keeps_what_was_traced_and_what_attention_hands_on():
    kept = {tensor.id: (tensor.elements, tensor.dtype) for tensor in WORK.saved(AT, Style())}
    assert kept == {
        "work.compute": (2 * 110.0, DtypeRole.COMPUTE),
        "work.fp32": (2 * 200.0, DtypeRole.FP32),
        "core_attention": (2 * 60.0, DtypeRole.COMPUTE),
    }


def test_an_image_of_twice_the_side_has_four_times_the_work():
    work = WORK.model_copy(update={"image_size": 224, "flops": Growth(linear=1000.0)})
    small = Shard(sequences=1.0, seq_len=1.0, context_len=1.0, image_size=224)
    large = Shard(sequences=1.0, seq_len=1.0, context_len=1.0, image_size=448)
    assert (work.model_flops(small), work.model_flops(large)) == (1000.0, 4000.0)


def test_parameters_are_whole_on_every_rank():
    assert [(group.elements, group.matrix) for group in WORK.parameters()] == [(100, True), (7, False)]
    assert Traced(name="none").parameters() == ()


def test_arrays_go_the_way_of_scalars():
    many = Shard(sequences=np.array([1.0, 2.0]), seq_len=10.0, context_len=0.0)
    for kernel, single in zip(WORK.kernels(many, Style()), WORK.kernels(AT, Style()), strict=True):
        assert np.broadcast_to(kernel.flops, 2)[1] == pytest.approx(single.flops)
        assert np.broadcast_to(kernel.bytes, 2)[1] == pytest.approx(single.bytes)
