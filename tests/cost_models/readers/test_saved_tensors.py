"""What a layer of the library keeps from forward to backward equals what autograd keeps, to the byte, in every row."""

import json
from pathlib import Path

import pytest

from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators.base import Shard, Style
from cost_models.readers import read_model
from cost_models.specs.model import LayerKind, ModelSpec, Role

DATA = Path(__file__).parents[2] / "data" / "flops_activations.json"
MEASURED = json.loads(DATA.read_text(encoding="utf-8"))
CASES = sorted(MEASURED["configs"])
DTYPE_BYTES = {"float32": 4.0, "bfloat16": 2.0}


def name(row) -> str:
    words = (row["case"], f"{row['batch']}x{row['length']}", row["dtype"], row["attention"], row["experts"])
    return "-".join(str(word) for word in (*words, "dropout" if row["dropout"] else "plain", row["run"]))


def attentions(model: ModelSpec):
    return [op for kind in model.kinds.values() for op in kind.operators if op.family == "attention"]


def library_style(row, model: ModelSpec) -> Style:
    """The library's modules on the CPU: no flash kernel there for dropout, nor for heads of two sizes."""
    sdpa, found = row["attention"] == "sdpa", attentions(model)
    alike = all(op.qk_dim == op.v_dim for op in found)
    flash = sdpa and alike and not (row["dropout"] and any(op.dropout for op in found))
    return Style(
        flash_attention=flash,
        softmax_fp32_copy=DTYPE_BYTES[row["dtype"]] < 4.0,
        fused_norm=False,
        fused_activation=False,
        compute_bytes=DTYPE_BYTES[row["dtype"]],
        dropout=row["dropout"],
        library=True,
        grouped_experts=row["experts"] == "grouped_mm",
        cpu_kernels=True,
        math_attention=sdpa and not flash,
    )


def kept(kind: LayerKind, at: Shard, style: Style) -> dict[str, float]:
    found = saved_tensors(kind.operators, at, style, Dropped())
    return {each: float(size) for each, (_, size) in found.items()}


def rope_tables(model: ModelSpec, row) -> float:
    """Cosines and sines, which the measurement counts in every layer that uses them."""
    if model.semantics.get("position") != "rope":
        return 0.0
    dim = MEASURED["configs"][row["case"]].get("qk_rope_head_dim") or attentions(model)[0].qk_dim
    return 2 * row["length"] * dim * DTYPE_BYTES[row["dtype"]]


@pytest.mark.parametrize("row", [row for row in MEASURED["rows"] if row["case"] != "resnet-50"], ids=name)
def test_every_layer_keeps_what_autograd_keeps(row):
    model = read_model(MEASURED["configs"][row["case"]])
    at = Shard(sequences=float(row["batch"]), seq_len=float(row["length"]), context_len=0.0)
    style = library_style(row, model)
    bytes_of = {kind: sum(kept(each, at, style).values()) for kind, each in model.kinds.items()}
    layers = [bytes_of[layer.kind] + rope_tables(model, row) for layer in model.expanded(Role.BLOCK)]
    assert layers == [value for value, count in row["saved"]["layers"] for _ in range(count)]


@pytest.mark.parametrize("row", [row for row in MEASURED["rows"] if row["case"] == "resnet-50"], ids=name)
def test_a_stage_keeps_what_autograd_keeps(row):
    model = read_model(MEASURED["configs"]["resnet-50"])
    at = Shard(sequences=float(row["batch"]), seq_len=1.0, context_len=0.0, image_size=row["length"])
    style = library_style(row, model)
    measured = [value for value, count in row["saved"]["layers"] for _ in range(count)]
    for stage, (depth, expected) in enumerate(zip((3, 4, 6, 3), measured, strict=True), start=1):
        first = kept(model.kinds[f"stage{stage}_first"], at, style)
        rest = kept(model.kinds[f"stage{stage}"], at, style)
        # Inside a stage, a block's input is the block before's output: one storage.
        shared = rest.pop("x")
        assert shared == first["out"]
        assert sum(first.values()) + (depth - 1) * sum(rest.values()) == expected


def test_all_rows_are_held():
    assert len(MEASURED["rows"]) == 130


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_read_is_made_in_the_layer(case):
    """Inputs are operators' outputs, parts of a fused linear, or tensors from outside."""
    model = read_model(MEASURED["configs"][case])
    for kind in model.kinds.values():
        known = {"x", "q", "k", "v", "q_raw", "k_raw", "mtp_input"}
        for operator in kind.operators:
            assert set(operator.inputs) <= known, (kind.name, operator.name)
            assert operator.name not in known
            known.add(operator.name)


@pytest.mark.parametrize("case", CASES)
def test_recompute_scopes_name_operators_of_their_kind(case):
    model = read_model(MEASURED["configs"][case])
    for kind in model.kinds.values():
        names = {operator.name for operator in kind.operators}
        for scope in kind.scopes:
            assert scope.operators and set(scope.operators) <= names


def test_llama_in_bf16_by_hand():
    # 20 h + 4 kv + 8 i + 4 heads + 8 bytes a token: h 2048, kv 512, i 8192, 32 heads, SDPA
    row = {
        "case": "llama-1b-gqa",
        "dtype": "bfloat16",
        "attention": "sdpa",
        "dropout": False,
        "experts": None,
    }
    model = read_model(MEASURED["configs"]["llama-1b-gqa"])
    at = Shard(sequences=1.0, seq_len=512.0, context_len=0.0)
    total = sum(kept(model.kinds["dense"], at, library_style(row, model)).values())
    assert total == 512 * (20 * 2048 + 4 * 512 + 8 * 8192 + 4 * 32 + 8)
