"""Tied tables in the states of a pipeline: once on one rank, again on the last stage, never lost."""

from types import SimpleNamespace

import pytest

from cost_models.readers import load_model
from cost_models.rows import model_rows
from cost_models.specs.counts import count_parameters
from cost_models.states import row_groups


def stored(name: str, train_mtp: bool, stages: int) -> int:
    """Elements that all stages together hold, less the model's own parameters."""
    model = load_model(name)
    rows = model_rows(model, SimpleNamespace(options=SimpleNamespace(train_mtp=train_mtp)))
    groups = [row_groups(row) for row in rows.rows]
    if stages == 1:
        before = frozenset(group.tie for each in groups[:-1] for group, _ in each if group.tie)
        groups[-1] = row_groups(rows.rows[-1], before)
    sizes = [sum(group.elements * count for group, count in each) for each in groups]
    counts = count_parameters(model)
    return sum(sizes[row] for row in rows.layers) - counts.parameters - (counts.mtp if train_mtp else 0)


@pytest.mark.parametrize(
    ("name", "train_mtp", "copy"),
    [
        ("llama-3.1-8b", False, 0),
        ("llama-3.2-1b", False, 128_256 * 2048),
        ("t5-3b", False, 32_128 * 1024),
        # The untied head is on the last stage anyway; a trained prediction layer brings the table there.
        ("deepseek-v3", False, 0),
        ("deepseek-v3", True, 129_280 * 7168),
    ],
)
def test_a_tied_table_is_stored_again_on_the_last_stage_only(name, train_mtp, copy):
    assert stored(name, train_mtp, stages=1) == 0
    assert stored(name, train_mtp, stages=4) == copy
