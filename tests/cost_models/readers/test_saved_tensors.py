"""The tensor ids that the blocks wire up: what a layer keeps equals what autograd keeps, to the byte."""

import json
from pathlib import Path

import pytest

from cost_models.operators.base import DtypeRole, Shard, Style
from cost_models.readers import read_model
from cost_models.specs.model import LayerKind, ModelSpec

STEPS = json.loads((Path(__file__).parents[2] / "data" / "oracle_steps.json").read_text(encoding="utf-8"))
DTYPE_BYTES = {"float32": 4.0, "bfloat16": 2.0}
FIXED_BYTES = {DtypeRole.FP32: 4.0, DtypeRole.INT64: 8.0, DtypeRole.BYTE: 1.0}


def saved_by_id(kind: LayerKind, at: Shard, style: Style) -> dict[str, float]:
    found: dict[str, float] = {}
    for operator in kind.operators:
        for tensor in operator.saved(at, style):
            size = float(tensor.elements) * FIXED_BYTES.get(tensor.dtype, style.compute_bytes)
            found[tensor.id] = max(size, found.get(tensor.id, 0.0))
    return found


def plain_style(row) -> Style:
    """As the library's own modules run: separate operators, no dropout."""
    return Style(
        flash_attention=row["attention"] == "sdpa",
        fused_norm=False,
        fused_activation=False,
        compute_bytes=DTYPE_BYTES[row["dtype"]],
        dropout=False,
    )


def rope_tables(model: ModelSpec, row) -> float:
    """Cosines and sines, which the measurement counts in every layer that uses them."""
    if model.semantics.get("position") != "rope":
        return 0.0
    dim = next(op.qk_dim for op in model.kinds["dense"].operators if op.family == "attention")
    return 2 * row["length"] * dim * DTYPE_BYTES[row["dtype"]]


@pytest.mark.parametrize(
    "row",
    [row for row in STEPS["saved"] if row["case"] != "resnet-50"],
    ids=lambda row: f"{row['case']}-{row['batch']}x{row['length']}-{row['dtype']}-{row['attention']}",
)
def test_a_layer_keeps_what_autograd_keeps(row):
    model = read_model(STEPS["configs"][row["case"]])
    at = Shard(sequences=float(row["batch"]), seq_len=float(row["length"]), context_len=0.0)
    kept = saved_by_id(model.kinds["dense"], at, plain_style(row))
    assert sum(kept.values()) + rope_tables(model, row) == row["layer_bytes"]


@pytest.mark.parametrize("row", [row for row in STEPS["saved"] if row["case"] == "resnet-50"])
def test_a_stage_keeps_what_autograd_keeps(row):
    model = read_model(STEPS["configs"]["resnet-50"])
    at = Shard(sequences=float(row["batch"]), seq_len=1.0, context_len=0.0, image_size=row["length"])
    style = plain_style(row)
    for stage, (depth, expected) in enumerate(zip((3, 4, 6, 3), row["layer_bytes"], strict=True), start=1):
        first = saved_by_id(model.kinds[f"stage{stage}_first"], at, style)
        rest = saved_by_id(model.kinds[f"stage{stage}"], at, style)
        # Inside a stage, a block's input is the block before's output: one storage.
        shared = rest.pop("x")
        assert shared == first["out"]
        assert sum(first.values()) + (depth - 1) * sum(rest.values()) == expected


@pytest.mark.parametrize("case", sorted(STEPS["configs"]))
def test_every_tensor_read_is_made_in_the_layer(case):
    """Inputs are operators' outputs, parts of a fused linear, or tensors from outside."""
    model = read_model(STEPS["configs"][case])
    for kind in model.kinds.values():
        known = {"x", "q", "k", "v", "q_raw", "k_raw", "mtp_input"}
        for operator in kind.operators:
            assert set(operator.inputs) <= known, (kind.name, operator.name)
            assert operator.name not in known
            known.add(operator.name)


@pytest.mark.parametrize("case", sorted(STEPS["configs"]))
def test_recompute_scopes_name_operators_of_their_kind(case):
    model = read_model(STEPS["configs"][case])
    for kind in model.kinds.values():
        names = {operator.name for operator in kind.operators}
        for scope in kind.scopes:
            assert scope.operators and set(scope.operators) <= names
