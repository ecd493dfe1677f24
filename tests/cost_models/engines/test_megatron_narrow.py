"""Narrow types under Megatron-LM: copies of weights, inputs of linears, precision-aware optimizer states."""

import numpy as np
import pytest

from cost_models.layer_walk import walk_layer
from cost_models.operators import CrossEntropy
from cost_models.operators.base import ParameterGroup, Shard
from planner.formats.megatron import read_megatron

LINEAR = ParameterGroup("w", 1)
TABLE = ParameterGroup("table", 1, rows=128)
NORM = ParameterGroup("norm", 1, matrix=False)


def situation(make_situation, precision="bf16", **options):
    job = {"engine": "megatron", "precision": precision, "options": options}
    return make_situation("llama-3.1-8b", "dgx-b200", 8, seq_len=1024, global_batch=8, **job)


@pytest.mark.parametrize(
    ("precision", "options", "weight"),
    [
        ("fp8", {}, 2 + 2),  # bf16, and fp8 as it is and transposed
        ("fp8", {"engine.fp8_weight_copies": 1}, 2 + 1),
        ("fp8", {"engine.fp8_param_gather": True}, 2),
        ("mxfp8", {}, 2 + 2 * (1 + 1 / 32)),
        ("mxfp8", {"engine.fp8_param_gather": True}, 2 * (1 + 1 / 32)),
        ("nvfp4", {}, 2 + 2 * (1 / 2 + 1 / 16)),
        ("bf16", {}, 2),
    ],
)
def test_copies_of_weights(make_situation, make_mesh, precision, options, weight):
    of = situation(make_situation, precision, **options)
    mesh = make_mesh(of, "")
    assert float(np.sum(of.engine.state_bytes(LINEAR, mesh, of.job).weights)) == pytest.approx(weight)
    for whole in (TABLE, NORM):
        assert float(np.sum(of.engine.state_bytes(whole, mesh, of.job).weights)) == 2.0


def test_narrow_parameters_travel_narrow(make_situation, make_mesh):
    of = situation(make_situation, "fp8", **{"engine.fp8_param_gather": True})
    assert float(np.sum(of.engine.sync_plan(LINEAR, make_mesh(of, ""), of.job).all_gather)) == 1.0
    assert float(np.sum(of.engine.sync_plan(TABLE, make_mesh(of, ""), of.job).all_gather)) == 2.0


@pytest.mark.parametrize(
    ("options", "optimizer"),
    [
        ({}, 4 + 8),
        ({"engine.master_dtype": "remainder"}, 2 + 8),  # the 16 bits that bf16 weights lack
        ({"engine.master_dtype": "fp16", "engine.moment_dtype": "bf16"}, 2 + 4),
        ({"engine.moment_dtype": "fp8", "engine.second_moment_dtype": "bf16"}, 4 + 1 + 2),
    ],
)
def test_precision_aware_optimizer(make_situation, make_mesh, options, optimizer):
    of = situation(make_situation, **options)
    found = of.engine.state_bytes(LINEAR, make_mesh(of, "tp=8"), of.job).optimizer
    assert float(np.sum(found)) == pytest.approx(optimizer)


def test_linears_keep_narrow_inputs(make_situation):
    """Llama-3.1-8B, a token: four inputs of linears of 4096 + 4096 + 4096 + 14,336 elements in one byte instead of two;
    attention and both norms keep theirs in bf16, so the output of attention is kept twice."""
    wide, narrow = (situation(make_situation, precision) for precision in ("bf16", "fp8"))
    at = Shard(1.0, 1024.0, 1024.0)
    kept = [
        float(walk_layer(of.model.kinds["dense"], at, of.engine.style(of.job, "ring"), ()).base.saved_bytes)
        for of in (wide, narrow)
    ]
    inputs = 1024 * (4096 + 4096 + 14_336)  # of these three nobody else keeps a copy
    assert kept[0] - kept[1] == pytest.approx(inputs * (2 - 1) - 1024 * 4096)


def test_fp8_without_bf16_is_fp32_around_its_products(make_situation, make_mesh):
    """Weights 4 + 2 narrow copies and no main copy; unfused, the loss overwrites logits that are fp32 already."""
    of = situation(make_situation, "fp8", **{"engine.wide_dtype": "fp32"})
    state = of.engine.state_bytes(LINEAR, make_mesh(of, "tp=8"), of.job)
    assert (float(np.sum(state.weights)), float(np.sum(state.optimizer))) == (4 + 2, 8)
    style, at = of.engine.style(of.job, "ring"), Shard(1.0, 1024.0, 1024.0)
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=128_256)
    assert [t.id for t in loss.saved(at, style)] == ["logits"]
    narrow = {"fp8-format": "e4m3", "num-layers": "2", "hidden-size": "64", "num-attention-heads": "4"}
    sizes = {"seq-length": "64", "max-position-embeddings": "64", "micro-batch-size": "1"}
    assert read_megatron(narrow | sizes, 8).job.options["engine.wide_dtype"] == "fp32"


def test_the_reader_takes_narrow_types_and_optimizer_dtypes():
    base = {
        "num-layers": "2",
        "hidden-size": "64",
        "num-attention-heads": "4",
        "seq-length": "64",
        "max-position-embeddings": "64",
        "micro-batch-size": "1",
        "bf16": "true",
        "fp8-format": "hybrid",
        "fp8-param-gather": "true",
        "use-precision-aware-optimizer": "true",
        "exp-avg-dtype": "bf16",
        "exp-avg-sq-dtype": "fp16",
        "optimizer-cpu-offload": "true",
        "optimizer-offload-fraction": "0.5",
    }
    settings = read_megatron(base, 8)
    options = settings.job.options
    assert options["engine.fp8_param_gather"] is True
    assert (options["engine.moment_dtype"], options["engine.second_moment_dtype"]) == ("bf16", "fp16")
    assert options["engine.master_dtype"] == "fp32"  # what bf16 lacks is not split off where the host steps
    assert settings.strategy.offload == "optimizer:0.5"
    del base["optimizer-cpu-offload"]
    assert read_megatron(base, 8).job.options["engine.master_dtype"] == "remainder"
