"""Bytes that operators move and keep: permutations of tokens, materialised scores, losses, split projections."""

import pytest

from cost_models.operators import Attention, Conv2d, CrossEntropy, Dispatch, Norm, Rope, Router
from cost_models.operators.base import DtypeRole, Phase, Shard, Style

AT = Shard(1.0, 4096.0, 4096.0)
EIGHT = Shard(1.0, 4096.0, 4096.0, ep=8.0)
TOKEN = 4096 * 1024 * 2.0
"""Bytes of 4,096 tokens of 1,024 features in bf16."""


@pytest.mark.parametrize(
    ("at", "style", "passes"),
    [
        (AT, Style(), 5),  # one rank: 4 copies written, a token read
        (EIGHT, Style(), 13),  # and 4 copies sorted by local expert: read and written
        (EIGHT, Style(deduplicated_dispatch=True), 7),  # a token received and copied on arrival
    ],
)
def test_dispatch_moves_copies(at: Shard, style: Style, passes: int):
    forward, _ = Dispatch(name="dispatch", hidden=1024, top_k=4).kernels(at, style)
    assert float(forward.bytes) == passes * TOKEN


def test_router_products_run_in_the_operands_precision():
    kernels = Router(name="router", hidden=1024, experts=64, top_k=4).kernels(AT, Style(router_fp32=True))
    assert not any(kernel.fp32 for kernel in kernels)
    # operands in bf16, scores in fp32
    assert float(kernels[0].bytes) == TOKEN + 64 * 1024 * 2 + 4096 * 64 * 4


def test_materialised_scores_are_passed_over():
    """Forward 4 accesses of 2 bytes a score, backward 7; dropout adds a read, a write and a byte."""
    scores = 2 * 4096.0 * 4096.0
    sizes = {"heads": 2, "kv_heads": 2, "qk_dim": 64, "v_dim": 64}
    for dropout, extra in ((False, 0), (True, 5)):
        attention = Attention(name="core", inputs=("q", "k", "v"), dropout=dropout, **sizes)
        kernels = attention.kernels(AT, Style(flash_attention=False))
        assert float(kernels[1].bytes) == scores * (8 + extra)
        assert float(kernels[3].bytes) == scores * (14 + extra)


def test_a_native_fused_loss_keeps_an_fp32_softmax():
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=1024)
    (native,) = loss.saved(AT, Style(fused_cross_entropy=True, cross_entropy_in_place=False))
    (in_place,) = loss.saved(AT, Style(fused_cross_entropy=True))
    assert (native.dtype, native.elements) == (DtypeRole.FP32, 4096 * 1024)
    assert in_place.id == "logits"


def test_a_compiled_loss_passes_over_the_logits_once_each_way():
    """4,096 x 1,024 logits in bf16: read and written once (4 bytes an entry); eager: three passes of 8 bytes."""
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=1024)
    eager, compiled = (loss.kernels(AT, Style(compiled_loss=found)) for found in (False, True))
    assert [float(kernel.bytes) for kernel in eager] == [4096 * 1024 * 24.0] * 2
    assert [float(kernel.bytes) for kernel in compiled] == [4096 * 1024 * 4.0] * 2


def test_values_keep_the_fused_projection_alive():
    rope = Rope(name="rope", inputs=("qkv",), width=5120)
    (kept,) = rope.saved(Shard(1.0, 4096.0, 4096.0, tp=2.0), Style(split_keeps_projection=True))
    assert kept.elements == 4096 * 5120 / 2
    assert rope.saved(AT, Style()) == ()
    assert (
        Rope(name="rope", inputs=("q_up", "kv_down"), width=5120).saved(
            AT, Style(split_keeps_projection=True)
        )
        == ()
    )


def test_a_convolutions_input_gradient_is_a_convolution():
    """3 x 3 from 64 to 128 channels: forward n 128, k 576; its input gradient n 64, k 1,152; FLOPs equal."""
    conv = Conv2d(name="conv", in_channels=64, out_channels=128, kernel_size=3, downsample=1)
    forward, backward, _ = conv.kernels(Shard(1.0, 1.0, 1.0, image_size=56), Style())
    assert (forward.n, forward.k) == (128, 576)
    assert (backward.phase, backward.n, backward.k) == (Phase.INPUT_GRADIENT, 64, 1152)
    assert 2 * backward.m * backward.n * backward.k == float(backward.flops)


def test_a_written_out_rms_norm_is_a_chain_of_kernels():
    """Bytes an element in bf16: 36 forward and 76 backward, 4 and 6 where fused; a LayerNorm is always fused."""
    eager, elements = Style(fused_norm=False), 4096 * 1024.0
    for kind, style, expected in (
        ("rms", eager, (36, 76)),
        ("rms", Style(), (4, 6)),
        ("layer", eager, (4, 6)),
        # without casts 20 + 8 and 52 + 24
        ("rms", Style(fused_norm=False, compute_bytes=4.0), (28, 76)),
    ):
        kernels = Norm(name="norm", inputs=("x",), kind=kind, width=1024).kernels(AT, style)
        assert tuple(float(kernel.bytes) / elements for kernel in kernels) == expected


def test_metrics_of_the_logits_are_made_after_the_loss():
    """Two metrics: logits cast from bf16, 6 bytes each, and the log-softmax read and written in fp32, 8."""
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=1024)
    kernels = loss.kernels(AT, Style(fused_cross_entropy=True, logit_metrics=2))
    assert len(kernels) == 3
    assert float(kernels[2].bytes) == 2 * 14 * 4096 * 1024
