"""An absent key is the class's default, listed as assumed; null is read as null; what is derived is listed."""

import re

import pytest

from cost_models.errors import BadInput
from cost_models.readers import FAMILIES, read_model
from cost_models.specs.counts import count_parameters
from planner.validation.oracle import oracle_rows

ROWS = [row for row in oracle_rows() if row.model_type in FAMILIES]
WRITTEN_OUT = [row for row in ROWS if row.form == "class defaults, written out"]
REAL = [row for row in ROWS if row.form in ("as completed by the library", "as published")]
NOT_SIZES = {"model_type", "architectures"}


def without(row, key):
    return {each: value for each, value in row.config.items() if each != key}


@pytest.mark.parametrize("row", WRITTEN_OUT, ids=lambda row: row.name)
def test_without_any_one_key_the_class_default_counts(row):
    """The written-out config holds the class's defaults, so leaving one out changes nothing."""
    for key in row.config.keys() - NOT_SIZES:
        model = read_model(without(row, key), reader="plain")
        assert count_parameters(model).parameters == row.parameters, key


@pytest.mark.parametrize("row", REAL[::4], ids=lambda row: f"{row.name} {row.form}")
def test_a_key_whose_absence_changes_the_count_is_listed(row):
    for key in sorted(row.config.keys() - NOT_SIZES - {"num_labels"}):
        try:
            model = read_model(without(row, key), reader="plain")
        except BadInput as error:
            assert error.pointer.startswith("/") and error.detail
            continue
        if count_parameters(model).parameters != row.parameters:
            listed = {re.split("[./]", each.key)[0] for each in model.assumed if each.changes_parameters}
            assert key in listed, key


def test_null_is_not_absent():
    # DeepSeek-V3's default is a query latent of 1536; null means none: 61 layers of 7168 x 128 x 192 instead of
    # 7168 x 1536 + 1536 (norm) + 1536 x 128 x 192.
    absent, null = (read_model({"model_type": "deepseek_v3", **keys}) for keys in ({}, {"q_lora_rank": None}))
    latent = 7168 * 1536 + 1536 + 1536 * 128 * 192
    difference = count_parameters(null).parameters - count_parameters(absent).parameters
    assert difference == 61 * (7168 * 128 * 192 - latent)
    assert "q_lora_rank" in {each.key for each in absent.assumed}
    assert "q_lora_rank" not in {each.key for each in null.assumed}


@pytest.mark.parametrize("value", [None, 128])
def test_a_head_size_that_is_derived_is_listed(value):
    config = {"model_type": "qwen3", "hidden_size": 2048, "num_attention_heads": 32, "head_dim": value}
    listed = {each.key: each.value for each in read_model(config).assumed}
    assert listed.get("head_dim") == ("64" if value is None else None)
