"""Counts of decoders with routed experts equal those of the models the library builds, to the last one."""

import json
from itertools import groupby
from pathlib import Path

import pytest

from cost_models.readers import read_model
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import ModelSpec, Role

ORACLE = Path(__file__).parents[2] / "data" / "oracle_moe.json"
ROWS = json.loads(ORACLE.read_text(encoding="utf-8"))["models"]


def runs_by_stack(model: ModelSpec) -> list[list[list[int]]]:
    """[parameters, layers in a row] of the blocks of each stack."""
    found: dict[str, list[int]] = {}
    for layer in model.layers:
        if layer.role is Role.BLOCK:
            each = layer_parameters(model.kinds[layer.kind])
            found.setdefault(layer.stack, []).extend([each] * layer.count)
    return [[[size, len(list(same))] for size, same in groupby(sizes)] for sizes in found.values()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['name']} {row['form']}")
def test_counts_equal_the_built_model(row):
    model = read_model(row["config"], name=row["name"])
    counts = count_parameters(model)
    assert counts.parameters == row["parameters"]
    assert counts.embedding == row["embedding"]
    if row["active"] is not None:
        assert counts.active == row["active"]
    assert sorted(runs_by_stack(model)) == sorted(row["layers"])
