"""Every counted config: what is read equals the model built, in total, active and by layer, or is refused by name."""

import gzip
import json
import sys
import time

import pytest

from cost_models.errors import UnknownModelFamily
from cost_models.readers import FAMILIES, read_model
from planner.validation.oracle import differences, oracle_file, oracle_rows

ROWS = oracle_rows()
READ = [row for row in ROWS if row.model_type in FAMILIES or "model_type" not in row.config]
OTHER = [row for row in ROWS if row not in READ]
MOST_SECONDS = 0.05


def reading_seconds(row):
    """Processor time of one reading."""
    started = time.process_time()
    read_model(row.config, reader="plain")
    return time.process_time() - started


@pytest.mark.parametrize("row", READ, ids=lambda row: f"{row.name} {row.form}")
def test_what_is_read_equals_the_built_model(row):
    model = read_model(row.config, name=row.name, reader="plain")
    assert differences(row, model) == ()
    assert min(reading_seconds(row) for _ in range(3)) < MOST_SECONDS


@pytest.mark.parametrize("row", OTHER, ids=lambda row: f"{row.name} {row.form}")
def test_what_is_not_read_is_refused_by_name(row):
    with pytest.raises(UnknownModelFamily, match=row.model_type):
        read_model(row.config, reader="plain")


@pytest.mark.parametrize(
    "row",
    [row for row in READ if row.form in ("class defaults, absent", "defaults only", "every key absent")],
    ids=lambda row: f"{row.name} {row.form}",
)
def test_sizes_that_a_config_does_not_state_are_listed(row):
    assert any(each.changes_parameters for each in read_model(row.config).assumed)


def test_a_wrong_count_would_be_seen():
    row = next(row for row in READ if row.name == "gpt-oss-120b")
    model = read_model({**row.config, "num_local_experts": 64})
    found = " ".join(differences(row, model))
    assert "parameters" in found and "active" in found and "layers" in found
    even = read_model({**row.config, "layer_types": ["full_attention"] * 36})
    assert differences(row, even) == ("layers of model.layers that differ have one kind",)


def test_the_data_say_where_they_come_from():
    with gzip.open(oracle_file(), "rt", encoding="utf-8") as lines:
        assert "transformers 5.24.0" in json.loads(next(lines))["source"]


@pytest.mark.bench
def test_reading_takes_a_few_milliseconds(capsys):
    seconds = [(min(reading_seconds(row) for _ in range(2)), row.name) for row in READ]
    seconds.sort()
    with capsys.disabled():
        median, (longest, name) = seconds[len(seconds) // 2][0], seconds[-1]
        sys.stdout.write(
            f"\n{len(seconds)} configs: median {median * 1e3:.2f} ms, longest {longest * 1e3:.2f} ms ({name})\n"
        )
    assert longest < MOST_SECONDS
