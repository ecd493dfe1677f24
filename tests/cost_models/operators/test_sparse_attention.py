"""The lightning indexer: FLOPs, kept tensors and messages, by hand; attention over the chosen keys only."""

import pytest

from cost_models.operators import Attention, Indexer
from cost_models.operators.base import Axis, Phase, Shard, Style

INDEXER = Indexer(name="indexer", inputs=("q", "k", "w"), heads=4, head_dim=8, top_k=16)


def shard(**more) -> Shard:
    return Shard(sequences=1.0, seq_len=64.0, context_len=0.0, **more)


def test_flops_are_half_of_the_square_for_every_head():
    # 2 x 64 queries x 32 earlier keys x 4 heads x 8
    assert INDEXER.model_flops(shard()) == 131_072
    forward = sum(each.flops for each in INDEXER.kernels(shard(), Style()) if each.phase is Phase.FORWARD)
    assert forward == 131_072


def test_it_keeps_its_inputs_and_the_chosen_indices():
    kept = {each.id: float(each.elements) for each in INDEXER.saved(shard(), Style())}
    # queries 64 x 4 x 8, one key head 64 x 8, weights 64 x 4, 16 indices a query
    assert kept == {"q": 2048, "k": 512, "w": 256, "indexer.indices": 1024}


def test_ranks_that_divide_the_sequence_score_their_own_queries():
    at = shard(tp=4, sp=1)
    forward = sum(each.flops for each in INDEXER.kernels(at, Style()) if each.phase is Phase.FORWARD)
    assert forward == 131_072 / 4
    moved = {each.axis: float(each.bytes) for each in INDEXER.messages(at, Style())}
    # keys 64 x 8 x 2 B and indices 64 x 16 x 8 B
    assert moved[Axis.TP] == 1024 + 8192


@pytest.mark.parametrize("length", [8.0, 16.0, 64.0])
def test_attention_over_chosen_keys_looks_at_no_more_than_them(length):
    at = Shard(sequences=1.0, seq_len=length, context_len=0.0)
    sparse = Attention(name="a", heads=1, kv_heads=1, qk_dim=1, v_dim=1, window=16)
    dense = Attention(name="a", heads=1, kv_heads=1, qk_dim=1, v_dim=1)
    assert sparse.model_flops(at) <= dense.model_flops(at)
    assert sparse.model_flops(at) <= 4.0 * length * 16


def test_chunked_attention_stays_inside_its_chunk():
    def flops(length, chunk):
        op = Attention(name="a", heads=1, kv_heads=1, qk_dim=1, v_dim=1, chunk=chunk)
        return op.model_flops(Shard(sequences=1.0, seq_len=length, context_len=0.0))

    # 10 positions in chunks of 4: two squares of 4 and one of 2, half of each, 4 FLOPs a pair
    assert flops(10.0, 4) == 4 * (16 + 16 + 4) / 2
    assert flops(10.0, 16) == flops(10.0, 0) == 4 * 100 / 2
