"""Activations in host memory: what leaves the device, what stands beside a running block, which copies show."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.activation_offload import offload_activations
from cost_models.errors import IllegalStrategy
from cost_models.host import HostRates
from cost_models.row_work import RowWork
from cost_models.specs.offload import ALL_BLOCKS, ActivationOffload, parse_act_offload
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.verify import verify

GB = 1e9
HOST = HostRates(link_bytes_per_s=10 * GB, step_bytes_per_s=GB)
OTHER = 5  # dp_communication, where bytes over the host's link are shown


def work() -> RowWork:
    """An embedding, one kind of block and a head; a block keeps 4 GB, or an input of 1 GB, and runs 0.3 s and 0.6 s."""
    times = np.zeros((6, 3, 1))
    forward, backward = times.copy(), times.copy()
    forward[0, 1], backward[0, 1] = 0.3, 0.6
    rows = np.zeros((3, 1))
    saved, full = rows.copy(), rows.copy()
    saved[:, 0], full[1] = (1 * GB, 4 * GB, 2 * GB), 1 * GB
    return RowWork(
        forward, backward, rows, times, times, saved, rows, full, rows, full, rows, np.zeros((5, 3, 1)), rows
    )


def test_blocks_leave_the_device_but_for_two_and_show_what_compute_does_not_hide():
    found = offload_activations(work(), ActivationOffload(ALL_BLOCKS), 32, HOST, 0.8)
    assert found.saved_bytes[:, 0].tolist() == [1 * GB, 0.0, 2 * GB]  # embedding and head stay
    assert found.host_bytes[:, 0].tolist() == [0.0, 4 * GB, 0.0]
    assert found.transient_bytes[:, 0].tolist() == [
        0.0,
        8 * GB,
        4 * GB,
    ]  # a double buffer; the last beside the loss
    # 4 GB take 0.4 s; 0.8 x 0.3 s and 0.8 x 0.6 s of it hide
    assert found.forward_parts_s[OTHER, 1, 0] == pytest.approx(0.16)
    assert found.backward_parts_s[OTHER, 1, 0] == 0.0
    again = found.forward_parts_s - found.spared_parts_s  # a recompute does not copy once more
    assert again[OTHER, 1, 0] == 0.0


def test_a_number_of_blocks_counts_as_its_share():
    found = offload_activations(work(), ActivationOffload(8), 32, HOST, 0.0)
    assert found.saved_bytes[1, 0] == 3 * GB  # 3/4 of 4 GB
    assert found.forward_parts_s[OTHER, 1, 0] == pytest.approx(0.1)  # a quarter of 0.4 s


def test_checkpoints_leave_what_is_not_recomputed_alone():
    plain, found = work(), offload_activations(work(), ActivationOffload(0, True), 32, HOST, 0.0)
    assert found.full_saved_bytes[1, 0] == 0.0
    assert found.full_transient_bytes[1, 0] == 1 * GB  # it is there while its block runs again
    assert np.array_equal(found.saved_bytes, plain.saved_bytes)
    assert np.array_equal(found.forward_parts_s, plain.forward_parts_s)
    assert found.spared_parts_s[OTHER, 1, 0] == pytest.approx(-0.2)  # 1 GB down and up; a recompute shows it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", ActivationOffload()),
        ("checkpoints", ActivationOffload(0, True)),
        ("blocks", ActivationOffload(ALL_BLOCKS)),
        ("blocks:12", ActivationOffload(12)),
    ],
)
def test_texts_come_back(text, expected):
    assert parse_act_offload(text) == expected
    assert expected.text() == text


@pytest.mark.parametrize("text", ["block", "blocks:0", "blocks:x", "checkpoints:1", ""])
def test_other_texts_are_refused_with_the_forms(text):
    with pytest.raises(IllegalStrategy, match="act_offload=blocks:12"):
        parse_act_offload(text)


@pytest.mark.parametrize(
    ("engine", "text", "rule"),
    [
        ("megatron", "act_offload=blocks", "act_offload_layers"),
        ("megatron", "act_offload=checkpoints", "act_offload"),
        ("megatron", "act_offload=blocks:12,recompute=selective", "megatron_act_offload"),
        ("megatron", "act_offload=blocks:12,pp=2", "act_offload_pp"),
        ("megatron", "act_offload=blocks:12,recompute=full:2", "act_offload_recompute"),
        ("torchtitan", "act_offload=blocks", "act_offload"),
        ("deepspeed", "act_offload=blocks", "act_offload"),
        ("fsdp2", "act_offload=blocks,recompute=full", "act_offload_recompute"),
        ("megatron", "offload=parameters", "offload"),
    ],
)
def test_engines_refuse_by_rule(make_situation, engine, text, rule):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64, engine=engine)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(text))
    assert rule in [violation.rule for violation in refused.value.violations]


def test_more_blocks_on_the_host_need_less_of_the_device_and_no_less_time(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    texts = ["none", "blocks:8", "blocks:16", "blocks:24", "blocks:31"]
    found = [evaluate(of, parse_strategy(f"act_offload={text}")) for text in texts]
    used = [one.memory.peak_allocated_bytes for one in found]
    assert used == sorted(used, reverse=True)
    assert [one.step_s for one in found] == sorted(one.step_s for one in found)
    assert [one.memory.host_bytes for one in found] == sorted(one.memory.host_bytes for one in found)


def test_gpipe_keeps_every_micro_batch_on_the_host(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64, engine="torch")
    one, eight = (
        evaluate(of, parse_strategy(f"zero=3,act_offload=blocks,schedule={schedule}")).memory.host_bytes
        for schedule in ("1f1b", "gpipe")
    )
    assert eight == pytest.approx(8 * one)  # 64 sequences on 8 ranks are 8 micro-batches


def test_copies_that_wait_show_in_full(make_situation):
    job = {"seq_len": 4096, "global_batch": 64, "engine": "fsdp2"}
    waits = make_situation("llama-3.1-8b", "dgx-h100", 8, **job)
    streams = make_situation("llama-3.1-8b", "dgx-h100", 8, **job, options={"engine.offload_streams": True})
    strategy = parse_strategy("act_offload=blocks")
    assert evaluate(streams, strategy).step_s < evaluate(waits, strategy).step_s
    plain = replace(evaluate(waits, parse_strategy("")), strategy=evaluate(waits, strategy).strategy)
    assert plain.step_s == evaluate(streams, parse_strategy("")).step_s


def test_where_nothing_fits_the_host_is_named(make_situation):
    options = {"engine.fused_cross_entropy": True}
    job = {"seq_len": 131_072, "global_batch": 8, "engine": "fsdp2", "options": options}
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, **job)
    alone = {"tp": 1, "cp": 1}
    result = make_plan(of, SearchRequest(pins=alone))
    assert result.status == "infeasible"
    assert "pin act_offload=allowed" in [change.change for change in result.relaxations]
    found = make_plan(of, SearchRequest(pins=alone | {"act_offload": "allowed"}))
    assert found.best.strategy.act_offload == "blocks"
    assert found.certificate.space["act_offload"] == [
        "none",
        "checkpoints",
        "blocks:8",
        "blocks:16",
        "blocks:24",
        "blocks",
    ]
    assert 30e9 < found.best.memory.host_bytes < 200e9


@pytest.mark.parametrize("engine", ["torch", "deepspeed"])
def test_a_pipeline_keeps_every_micro_batch_in_flight_on_the_host(make_situation, engine):
    """Eight of 32 layers a rank, four micro-batches in flight on the first: 8 x 4 inputs of 8,192 x 4,096 x 2 bytes."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64, engine=engine)
    plain, moved = (
        evaluate(of, parse_strategy(f"pp=4,recompute=full,act_offload={what}"))
        for what in ("none", "checkpoints")
    )
    inputs = 8 * 4 * 8192 * 4096 * 2
    assert moved.memory.host_bytes == inputs
    freed = [
        a.allocated_bytes - b.allocated_bytes
        for a, b in zip(plain.memory.stages, moved.memory.stages, strict=True)
    ]
    assert freed[0] == inputs - 8192 * 4096 * 2  # the running block's own is on the device
    assert moved.step_s > plain.step_s
    verify(Context.of(of), moved)
