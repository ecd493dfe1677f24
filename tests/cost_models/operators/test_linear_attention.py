"""Chunked linear attention: FLOPs, parameters and kept tensors by hand; linear in the length."""

from cost_models.operators import LinearAttention
from cost_models.operators.base import Phase, Shard, Style

DELTA = LinearAttention(
    name="delta",
    inputs=("q", "k", "v"),
    heads=4,
    key_heads=2,
    qk_dim=8,
    v_dim=16,
    chunk=32,
    delta=True,
    gated=True,
)
PLAIN = DELTA.model_copy(update={"delta": False, "gated": False})


def shard(length: float = 64.0, **more) -> Shard:
    return Shard(sequences=1.0, seq_len=length, context_len=0.0, **more)


def test_flops_of_plain_attention():
    # a head and chunk: Q K^T and (Q K^T) V over half the square 32 x 32 x (8 + 16), Q S and K^T V 4 x 32 x 8 x 16
    chunk = 32 * 32 * 24 + 4 * 32 * 8 * 16
    assert PLAIN.model_flops(shard()) == 2 * 4 * chunk


def test_the_delta_rule_adds_its_triangular_system_and_its_correction():
    # K K^T 32 x 32 x 8, the system for 8 + 16 right-hand sides 32 x 32 x 24, W S 2 x 32 x 8 x 16
    extra = 32 * 32 * (8 + 24) + 2 * 32 * 8 * 16
    assert DELTA.model_flops(shard()) - PLAIN.model_flops(shard()) == 2 * 4 * extra


def test_a_twice_longer_sequence_costs_twice_as_much():
    assert DELTA.model_flops(shard(128.0)) == 2 * DELTA.model_flops(shard(64.0))


def test_only_gated_heads_have_parameters():
    assert sum(group.elements for group in DELTA.parameters()) == 2 * 4
    assert PLAIN.parameters() == ()


def test_kept_tensors():
    kept = {each.id: float(each.elements) for each in DELTA.saved(shard(), Style())}
    # q and k 64 x 2 x 8, v 64 x 4 x 16, 2 chunks x 4 heads x 8 x 16 states, x 32 x 32 inverses
    assert kept == {
        "q": 1024,
        "k": 1024,
        "v": 4096,
        "delta.states": 1024,
        "delta.gates": 512,
        "delta.inverses": 8192,
    }


def test_ranks_share_the_heads():
    whole, part = DELTA.kernels(shard(), Style()), DELTA.kernels(shard(tp=2), Style())
    assert [each.flops / 2 for each in whole] == [each.flops for each in part]
    assert part[1].phase is Phase.INPUT_GRADIENT and part[1].flops == 2.5 * part[0].flops
