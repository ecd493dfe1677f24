"""What each optimizer keeps per parameter, by kind of parameter."""

import pytest

from cost_models.engines.group_bytes import moment_bytes
from cost_models.operators.base import ParameterGroup, Split
from cost_models.specs.job import Optimizer
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate

MATRIX = ParameterGroup("projection", 64, Split.TP)
NORM = ParameterGroup("norm", 8, matrix=False)
TABLE = ParameterGroup("embedding", 64, Split.VOCABULARY, rows=8, matrix=False)
HEAD = ParameterGroup("head", 64, Split.VOCABULARY, rows=8)


@pytest.mark.parametrize(
    ("optimizer", "matrix", "vector", "table"),
    [
        ("adamw", 8.0, 8.0, 8.0),
        ("sgd", 4.0, 4.0, 4.0),
        ("muon", 4.0, 8.0, 8.0),  # AdamW for all but the matrices inside blocks
        ("adafactor", 0.0, 4.0, 0.0),  # a matrix keeps two vectors
        ("adam8bit", 2.0 + 8 / 256, 2.0 + 8 / 256, 2.0 + 8 / 256),
    ],
)
def test_moments_by_kind_of_parameter(optimizer, matrix, vector, table):
    """Bytes of fp32 moments."""
    found = [moment_bytes(group, Optimizer(optimizer), "fp32") for group in (MATRIX, NORM, TABLE, HEAD)]
    assert found == [matrix, vector, table, table]


def test_muon_saves_4_bytes_on_every_matrix_of_a_model(make_situation):
    """GPT-2: 12 blocks x 12 x 768^2 = 84,934,656 elements in matrices; the tied table keeps two moments."""
    kept = {}
    for optimizer in ("adamw", "muon"):
        job = {"engine": "torch", "precision": "fp32", "optimizer": optimizer}
        of = make_situation("gpt2", "dgx-a100", 1, seq_len=1024, global_batch=1, **job)
        kept[optimizer] = evaluate(of, parse_strategy("zero=0")).memory.stages[0].by_phase["initialisation"]
    assert kept["adamw"] - kept["muon"] == pytest.approx(4 * 12 * 12 * 768**2, rel=1e-9)
