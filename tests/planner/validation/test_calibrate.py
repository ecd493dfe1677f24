"""Fitting scales: recovers a scale that is planted, ignores what may not be fitted to, writes only its lines."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cost_models.profiles import ROOT_VARIABLE, profiles_root
from cost_models.roofline import Scale, load_efficiency
from planner.validation.calibrate import Fit, calibrate, step_log_sigma, write_scales
from planner.validation.predict import Outcome, outcome_of, predict_case
from planner.validation.rows import Run

ROW = {
    "model_json": "models/llama3-8b.json",
    "kind": "dense",
    "core": "yes",
    "seq_len": "4096",
    "gpu": "A100-SXM-80GB",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "tp": "2",
    "dp": "4",
    "sequence_parallel": "true",
    "recompute": "none",
    "micro_batch": "1",
    "zero_stage": "1",
}


def planted(name: str, batch: int, scale: Scale, factor: float = 1.0) -> Outcome:
    """A run whose measured time is our own prediction under `scale`, times a factor."""
    cells = ROW | {"id": name, "global_batch": str(batch), "step_time_s": "1"}
    case = outcome_of(Run(cells, Path())).case
    assert case
    seconds = factor * predict_case(case, {"ampere": scale}).step_s
    return outcome_of(Run(cells | {"step_time_s": repr(seconds)}, Path()))


def test_a_planted_scale_is_found_and_an_odd_row_ignored():
    truth = Scale(matmul=0.8)
    rows = [planted(f"{source}-1", batch, truth) for source, batch in (("a", 32), ("b", 64), ("c", 128))]
    (fit,) = calibrate([*rows, planted("b-2", 64, truth, factor=3.0)])
    assert fit.scale.matmul == 0.8
    assert fit.sources == ("a", "b", "c")
    assert fit.held_out["a"][0] == pytest.approx(0.0, abs=1e-9)


def test_assumed_rows_are_never_fitted_to():
    good = planted("a-1", 32, Scale(matmul=0.8))
    assert good.case
    assert calibrate([replace(good, case=replace(good.case, assumed=("recompute=none",)))]) == ()


def test_sigma_covers_nine_rows_in_ten():
    # |errors| 0.01 to 0.10: the ninth is 0.09, and 0.09 / 1.6449
    errors = tuple(i / 100 for i in range(1, 11))
    fit = Fit("ampere", Scale(), 10, ("a", "b"), ("matmul",), 0.05, {"a": errors})
    assert step_log_sigma([fit]) == pytest.approx(0.09 / 1.6448536)
    assert step_log_sigma([replace(fit, alone=("a",))]) is None


def test_writing_touches_the_scales_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = tmp_path / "profiles"
    shutil.copytree(profiles_root() / "efficiency", root / "efficiency")
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    before = load_efficiency("volta")
    write_scales([Fit("volta", Scale(matmul=0.7, flash2=0.4), 3, ("a",), ("matmul", "flash2"), 0.1)])
    after = load_efficiency("volta")
    assert (after.scale.matmul, after.scale.flash2) == (0.7, 0.4)
    assert replace(after, scale=before.scale, kind=before.kind) == before
