"""FLOPs by layer equal the counter's, to the last one, for every measured step; model FLOPs halve what is masked."""

import json
from itertools import groupby
from pathlib import Path

import pytest

from cost_models.readers import load_model, read_model
from cost_models.specs.counts import forward_flops
from cost_models.specs.flops import Convention, Counting, layer_flops, step_flops
from cost_models.specs.model import ModelSpec, Role

DATA = Path(__file__).parents[2] / "data" / "flops_activations.json"
MEASURED = json.loads(DATA.read_text(encoding="utf-8"))
ROWS = [row for row in MEASURED["rows"] if "flops" in row]


def name(row) -> str:
    words = (row["case"], f"{row['batch']}x{row['length']}", row["dtype"], row["attention"], row["experts"])
    return "-".join(str(word) for word in (*words, "dropout" if row["dropout"] else "plain", row["run"]))


def measured_model(row) -> ModelSpec:
    return read_model(MEASURED["configs"][row["case"]])


def runs_flash(row, model: ModelSpec) -> bool:
    """The CPU has a flash kernel without dropout and for heads of one size only."""
    attention = [op for kind in model.kinds.values() for op in kind.operators if op.family == "attention"]
    fused = row["attention"] == "sdpa" and all(op.qk_dim == op.v_dim for op in attention)
    return fused and not (row["dropout"] and any(op.dropout for op in attention))


def by_layer(model: ModelSpec, row, counting: Counting) -> list[float]:
    """Forward FLOPs of each block (of ResNet: of each stage)."""
    blocks = [
        (layer.kind.removesuffix("_first"), flops.forward)
        for layer, flops in layer_flops(model, row["length"], counting)
        if layer.role is Role.BLOCK
        for _ in range(layer.count)
    ]
    if not model.is_vision:
        return [forward for _, forward in blocks]
    return [sum(each for _, each in stage) for _, stage in groupby(blocks, key=lambda block: block[0])]


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_every_layer_equals_the_counter(row):
    model = measured_model(row)
    counting = Counting(Convention.COUNTER, flash=runs_flash(row, model))
    expected = [value for value, count in row["flops"]["layers"] for _ in range(count)]
    assert [row["batch"] * each for each in by_layer(model, row, counting)] == expected
    step = step_flops(model, row["length"], counting)
    assert step.forward * row["batch"] == row["flops"]["forward"]
    assert step.backward * row["batch"] == row["flops"]["backward"]


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_what_lies_outside_the_layers_equals_the_counter(row):
    model = measured_model(row)
    outside = sum(
        flops.forward
        for layer, flops in layer_flops(model, row["length"], Counting(Convention.COUNTER))
        if layer.role not in (Role.BLOCK, Role.MTP)
    )
    assert outside * row["batch"] == sum(row["flops"]["outside"].values())


def test_all_eight_models_are_measured():
    assert len({row["case"] for row in ROWS}) == 8
    # 130 measured rows, of which 7 (experts in bf16) have bytes and no FLOPs
    assert (len(MEASURED["rows"]), len(ROWS)) == (130, 123)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3", "gemma-3-1b", "t5-3b", "resnet-50"])
def test_model_flops_agree_with_the_sum_and_backward_is_twice_forward(model):
    spec = load_model(model)
    step = step_flops(spec, 2048)
    assert step.forward == pytest.approx(forward_flops(spec, 2048), rel=1e-12)
    assert step.backward == pytest.approx(2 * step.forward, rel=1e-12)


def test_the_counter_sees_the_whole_square():
    # Llama 3.1 8B at 4,096: 32 layers x 4 x 4096^2 x 4096; half of it under a causal mask
    model = load_model("llama-3.1-8b")
    square = 32 * 4 * 4096**2 * 4096
    counted, needed = step_flops(model, 4096, Counting(Convention.COUNTER)), step_flops(model, 4096)
    assert counted.attention == square
    assert needed.attention == square / 2
    # backward: 2.5 x the square with a flash kernel, 2 x without
    eager = step_flops(model, 4096, Counting(Convention.COUNTER, flash=False))
    assert counted.backward - eager.backward == square / 2
