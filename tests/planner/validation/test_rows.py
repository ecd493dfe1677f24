"""Rows of measured runs: counters and units of memory, times, broken tables."""

from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.validation.rows import Run, Unusable, read_runs

HEADER = "id,gpu,n_gpus,framework,precision,micro_batch,global_batch"


def run(**cells: str) -> Run:
    return Run(cells, Path())


def test_a_source_is_the_prefix_of_the_name():
    assert run(id="bskill-013").source == "bskill"


@pytest.mark.parametrize(
    ("kind", "counter", "rank", "unit"),
    [
        ("torch max_memory_allocated, max over ranks; reserved 70.88 GiB", "allocated", "max", 1024**3),
        ("torch max_memory_allocated of the last rank (last pipeline stage)", "allocated", "last", 1024**3),
        ("max reserved (reserved_bytes.all.peak), max over ranks", "reserved", "max", 1024**3),
        ('peak allocated "GB"', "allocated", "max", 1e9),
        # nvidia-smi counts MiB, so a GB read off it is 1,024 of them
        ("nvidia-smi GB on the first or last node", "device_used", "ends", 1024**3),
    ],
)
def test_memory_is_compared_like_with_like(kind: str, counter: str, rank: str, unit: float):
    found = run(peak_memory_gib="40", memory_kind=kind)
    assert (found.counter, found.memory_rank, found.memory_bytes) == (counter, rank, 40 * unit)


def test_no_figure_has_no_counter():
    assert run(memory_kind="nvidia-smi GB").counter is None


def test_a_printed_step_beats_a_derived_one():
    assert run(step_time_s="2.5", derived_step_time_s="2.6").step_s == 2.5
    assert run(derived_step_time_s="2.6").step_s == 2.6
    assert run(step_time_s="nan").step_s is None


def test_whole_numbers_or_a_reason():
    assert run(pp="4").whole("pp") == 4
    assert run().whole("pp", 1) == 1
    for text in ("x", "0", "inf"):
        with pytest.raises(Unusable, match="pp is"):
            run(pp=text).whole("pp")


def test_a_table_without_the_needed_columns_is_refused(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text("id,gpu\nx-1,H100\n")
    with pytest.raises(BadInput, match="lack the columns n_gpus"):
        read_runs(path)


def test_empty_cells_are_absent(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}\nx-1,H100, 8 ,Megatron-LM,bf16,,16\n")
    (found,) = read_runs(path)
    assert found.cells == {
        "id": "x-1",
        "gpu": "H100",
        "n_gpus": "8",
        "framework": "Megatron-LM",
        "precision": "bf16",
        "global_batch": "16",
    }


def test_a_model_file_cannot_lie_outside_the_folder(tmp_path: Path):
    folder = tmp_path / "table"
    folder.mkdir()
    (tmp_path / "secret.json").write_text("{}")
    with pytest.raises(Unusable, match="neither beside the table"):
        Run({"model_json": "../secret.json"}, folder).model_file()
