"""Bytes that a rank sends, by hand."""

import pytest

from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from cost_models.traffic import sent_bytes
from planner.evaluation import Context, complete_legal
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve

# llama-3.1-8b: 32 blocks, hidden 4,096, 32 heads and 8 key-value heads of 128, intermediate 14,336, vocabulary 128,256
HIDDEN, SEQ = 4096, 2048
PARAMETERS = 8_030_261_248


def sent(text: str, engine: str, devices: int = 8) -> dict[str, tuple[float, ...]]:
    """Bytes sent with 16 sequences of 2,048 a step."""
    job = JobRequest(seq_len=SEQ, global_batch=16, engine=engine)
    cluster = PresetCluster(name="dgx-h100", devices=devices)
    context = Context.of(resolve(CatalogModel(name="llama-3.1-8b"), cluster, job, reader="plain"))
    strategy = complete_legal(context, parse_strategy(text))
    return dict(sent_bytes(context.pricer, context.mesh_of(strategy), strategy))


def test_fsdp_gathers_twice_and_scatters_once_every_micro_batch() -> None:
    # mbs 2 on 8 ranks is one micro-batch; 2 gathers in bf16 and a reduce-scatter of fp32 gradients: 7/8 (2 x 2 + 4) P
    moved = sent("mbs=2", "fsdp2")
    assert moved["dp"][0] == pytest.approx(0.875 * 8 * PARAMETERS, rel=0.07)
    assert moved["tp"] == moved["cp"] == moved["ep"] == moved["pp"] == (0.0,)


def test_more_micro_batches_send_more_only_where_parameters_are_gathered_in_each() -> None:
    once, twice = sent("mbs=2", "fsdp2")["dp"][0], sent("mbs=1", "fsdp2")["dp"][0]
    assert twice == pytest.approx(2.0 * once, rel=0.01)
    zero1 = [sent(f"mbs={mbs}", "megatron")["dp"][0] for mbs in (1, 2)]
    assert zero1[0] == pytest.approx(zero1[1], rel=1e-12)


def test_a_boundary_tensor_is_handed_on_both_ways() -> None:
    # pp 2, tp 1, dp 4: 4 micro-batches of mbs 1; bf16 activations of 2,048 x 4,096, forward from one, backward to it
    moved = sent("pp=2", "megatron")
    assert moved["pp"] == pytest.approx((4 * SEQ * HIDDEN * 2,) * 2)


def test_tensor_parallel_with_sequence_parallel_gathers_and_scatters_each_block_twice_each_way() -> None:
    # Every one of 32 blocks: attention and MLP each gather and scatter 2,048 x 4,096 bf16 forward and backward, and
    # gather once more for the weight gradient; 16 micro-batches on dp 1 of mbs 1: 2 x 5 x 7/8 a block, and the ends.
    moved = sent("tp=8", "megatron")["tp"][0]
    blocks = 16 * 32 * 2 * 5 * 0.875 * SEQ * HIDDEN * 2
    assert blocks <= moved <= 1.15 * blocks


def test_chunks_of_an_interleaved_pipeline_hand_on_more() -> None:
    plain, chunked = sent("pp=4", "megatron")["pp"], sent("pp=4,vpp=2", "megatron")["pp"]
    # rank 1 holds stage 1 of 4 (two neighbours), then stages 1 and 5 of 8 (four)
    assert chunked[1] == pytest.approx(2.0 * plain[1])


def test_experts_exchange_tokens_and_data_parallel_moves_less_than_without_zero() -> None:
    job = JobRequest(seq_len=2048, global_batch=64)
    cluster = PresetCluster(name="dgx-h100", devices=16)
    context = Context.of(resolve(CatalogModel(name="mixtral-8x7b"), cluster, job, reader="plain"))
    strategy = complete_legal(context, parse_strategy("ep=8,tp=2,pp=1"))
    moved = sent_bytes(context.pricer, context.mesh_of(strategy), strategy)
    # 32 blocks, 8 micro-batches on dp 8; 2,048 / 2 tokens x 2 experts x 4,096 bf16, out and back, forward and backward
    each = 2048 / 2 * 2 * 4096 * 2
    assert moved["ep"][0] == pytest.approx(8 * 32 * 4 * each * 7 / 8, rel=0.05)
