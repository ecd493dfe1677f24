"""Figures: one a source, the same bytes for the same predictions, refusals with what to change."""

from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.validation import validate_file
from planner.validation.figures import plot_report, write_figures
from planner.validation.report import ValidationReport

ROWS = """id,model,model_json,kind,core,seq_len,gpu,n_gpus,gpus_per_node,framework,precision,tp,pp,dp,\
sequence_parallel,recompute,micro_batch,global_batch,zero_stage,step_time_s,peak_memory_gib,memory_kind,oom
a-1,m,models/llama3-8b.json,dense,yes,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,2,1,4,true,none,1,32,1,2.0,40,\
"torch max_memory_allocated, max over ranks",false
b-1,m,models/llama3-8b.json,dense,no,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,2,1,4,true,,1,32,1,2.0,,,false
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ValidationReport:
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text(ROWS)
    return validate_file(path)


def test_one_figure_a_source_and_none_of_sources_that_are_gone(report: ValidationReport, tmp_path: Path):
    pytest.importorskip("matplotlib")
    (tmp_path / "gone.svg").write_text("")
    assert [path.name for path in write_figures(report, tmp_path)] == ["a.svg", "b.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.svg"]
    assert "measured, GiB at the peak" in (tmp_path / "a.svg").read_text()
    assert "GiB" not in (tmp_path / "b.svg").read_text()  # it has no memory figure


def test_the_same_predictions_give_the_same_file(report: ValidationReport, tmp_path: Path):
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        plot_report(report, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_another_format_is_refused_with_those_known(report: ValidationReport, tmp_path: Path):
    with pytest.raises(BadInput, match=r"\.svg, \.png, \.pdf"):
        plot_report(report, tmp_path / "plot.docx")
