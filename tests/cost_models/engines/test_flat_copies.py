"""Copies between parameters and flat messages: which engines make them, how many bytes, and that they show."""

import numpy as np
import pytest

from cost_models.operators.base import ParameterGroup
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

WEIGHT = ParameterGroup("w", 1)
STRATEGY = parse_strategy("zero=3,mbs=1")


def copied(make_situation, make_mesh, engine, strategy, group=WEIGHT, **options):
    of = make_situation(
        "llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=32, engine=engine, options=options
    )
    mesh = make_mesh(of, strategy)
    return float(
        np.ravel(of.engine.flat_copy_bytes(group, of.engine.group_plan(group, mesh, of.job), mesh))[0]
    )


@pytest.mark.parametrize(
    ("engine", "strategy", "bytes_"),
    [
        # bf16 weights of 8 shards, gathered twice: 2 x (2 in and out) x (2 x 9 / 8); gradients 2 read, 4 written; the
        # reduced shard is read, added and written: 3 x 4 / 8
        ("fsdp2", "zero=3", 2 * 2 * 2 * 9 / 8 + 6 + 12 / 8),
        # gathered once
        ("fsdp2", "zero=2", 2 * 2 * 9 / 8 + 6 + 12 / 8),
        # replicas alone: nothing is gathered, parameters are copied out of the shard itself
        ("fsdp2", "zero=2,dp_replicate=8", 2 * 2 + 6 + 12),
        ("torch", "dp=8,zero=1", 0.0),
        # FSDP1 casts its shards before both gathers, 2 x 6 / 8, concatenates gradients, 2 + 2, and casts them, 2 + 4;
        # the reduced shard is cast and added: (4 + 4 + 12) / 8
        ("fsdp1", "zero=3", 1.5 + 4 + 6 + 2.5),
        # DeepSpeed's gradients are bf16 in its buckets
        ("deepspeed", "zero=3", 2 * 2 * 2 * 9 / 8 + 4 + 6 / 8),
    ],
)
def test_bytes_an_element_in_a_micro_batch(make_situation, make_mesh, engine, strategy, bytes_):
    assert copied(make_situation, make_mesh, engine, strategy) == pytest.approx(bytes_)


def test_frozen_weights_have_no_gradient_to_copy(make_situation, make_mesh):
    frozen = ParameterGroup("w", 1, frozen=True)
    found = copied(make_situation, make_mesh, "fsdp2", "zero=3", frozen)
    assert found == pytest.approx(2 * 2 * 2 * 9 / 8)


def test_the_copies_are_part_of_the_step(make_situation):
    """Between FSDP2 and a twin without copies lie at least their bytes at the memory's datasheet rate."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=32, engine="fsdp2")
    kind = type(of.engine)
    step_s = evaluate(of, STRATEGY).step_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "flat_copy_bytes", lambda *_: 0.0)
        without_s = evaluate(of, STRATEGY).step_s
    moved = 8.03e9 * (9 + 6 + 1.5) * 4  # 4 micro-batches of every parameter
    least_s = moved / of.cluster.device.memory_bytes_per_s.value
    assert least_s < step_s - without_s < 2.0 * least_s


def test_fsdp1_reduces_in_the_compute_dtype_without_a_cast(make_situation, make_mesh):
    # 1.5 before the gathers, 4 concatenated, (2 + 4 + 12) / 8 added
    found = copied(make_situation, make_mesh, "fsdp1", "zero=3", **{"engine.grad_dtype": "bf16"})
    assert found == pytest.approx(1.5 + 4 + 2.25)
    frozen = ParameterGroup("w", 1, frozen=True)
    assert copied(make_situation, make_mesh, "fsdp1", "zero=3", frozen) == pytest.approx(1.5)
