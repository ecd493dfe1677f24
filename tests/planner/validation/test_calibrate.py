"""Fitting: finds a planted constant, ignores odd and assumed rows, is the same every time, writes only its lines."""

import math
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cost_models.profiles import ROOT_VARIABLE, profiles_root
from cost_models.roofline import load_efficiency, load_generation, load_uncertainty
from planner.validation.calibrate import (
    Calibration,
    calibrate,
    efficiency_under,
    with_unseen,
    write_constants,
    write_spreads,
)
from planner.validation.calibrate.fit import Left
from planner.validation.calibrate.noise import Spread, fitted_spreads, held
from planner.validation.calibrate.parameters import Expected, Parameter, parameters_of
from planner.validation.calibrate.solve import NOISE, deviation, precision_root, robust_solve
from planner.validation.calibrate.spread import MOST_UNSEEN, spreads_of, unseen_held
from planner.validation.calibrate.support import typical_slopes, unknown
from planner.validation.predict import Outcome, outcome_of, predict_case
from planner.validation.rows import Run
from tests.planner.validation.llama_row import ROW as LLAMA

ROW = LLAMA | {"core": "yes"}
SLOW = 0.85
"""All kernels at 0.85 of what is expected."""


def planted(name: str, batch: int, factor: float = 1.0) -> Outcome:
    """A run whose measured time is our own prediction with kernels at SLOW, times a factor."""
    cells = ROW | {"id": name, "global_batch": str(batch), "step_time_s": "1"}
    case = outcome_of(Run(cells, Path())).case
    assert case
    plain = efficiency_under(case, {})
    rates = {name: getattr(plain.scale, name) * SLOW for name in ("matmul", "attention", "memory")}
    slow = replace(plain, scale=replace(plain.scale, **rates))
    return outcome_of(Run(cells | {"step_time_s": repr(factor * predict_case(case, slow).step_s)}, Path()))


@pytest.fixture(scope="module")
def found() -> Calibration:
    rows = [planted(f"{source}-{n}", 32 * n) for source in ("a", "b", "c") for n in (1, 2)]
    return calibrate([*rows, planted("b-3", 64, factor=3.0)])


def test_a_planted_slowness_is_found_and_an_odd_row_ignored(found: Calibration):
    good = [left for left in found.rows if left.case.run.id != "b-3"]
    # expected constants hold a little against seven rows: log 0.85 = -0.163, of which most is found
    assert max(abs(left.inside) for left in good) < 0.04
    assert max(abs(left.by_source) for left in good) < 0.06
    assert found.sources == ("a", "b", "c")


def test_the_same_rows_give_the_same_constants(found: Calibration):
    rows = [planted(f"{source}-{n}", 32 * n) for source in ("c", "a", "b") for n in (2, 1)]
    again = calibrate([planted("b-3", 64, factor=3.0), *rows])
    assert again.values == found.values


def test_assumed_rows_are_never_fitted_to():
    good = planted("a-1", 32)
    assert good.case
    assert calibrate([replace(good, case=replace(good.case, assumed=("recompute=none",)))]).values == ()


def test_a_constant_without_evidence_stays_as_expected():
    # (e + J x) / NOISE with one row that does not touch the second constant
    assert robust_solve([[0.1, 0.0]], [0.0], [1.0], [0.0, 0.0]) == [0.0, 0.0]
    # minimise (0.1 x + 0.03)^2 / (2 NOISE^2) + x^2 / 2: x = -0.1 * 0.03 / (0.01 + NOISE^2)
    (x,) = robust_solve([[0.1]], [0.03], [1.0], [0.0])
    assert x == pytest.approx(-0.003 / (0.01 + NOISE**2))


def test_a_row_far_off_pulls_no_harder_than_at_the_noise():
    (near,) = robust_solve([[0.1]], [NOISE], [1.0], [0.0])
    (far,) = robust_solve([[0.1]], [100.0], [1.0], [0.0])
    # at the cap the pull is 0.1 / NOISE = 1.67 however far: x = -1.67
    assert far == pytest.approx(-0.1 / NOISE, rel=1e-3)
    assert near > far


def test_values_count_standard_deviations_of_the_logarithm():
    parameter = Parameter("generation", "g", "kernels", Expected(0.9, 0.1))
    assert parameter.of(0.0) == 0.9
    assert parameter.of(2.0) == pytest.approx(0.9 * math.exp(0.2))


def left_of(found: Calibration, error: float, communication: float = 0.0, near: float = 0.01) -> Left:
    return replace(found.rows[0], without=error, communication=communication, near=near)


def dense_spread(found: Calibration, rows: Sequence[Left], others: Sequence[Left] = ()) -> Spread:
    return fitted_spreads(replace(found, rows=tuple(rows), others=tuple(others)))["dense"]


def test_errors_that_go_with_communication_are_given_to_it(found: Calibration):
    quiet = [left_of(found, 0.02 * (-1) ** i) for i in range(40)]
    loud = [left_of(found, 0.2 * (-1) ** i, communication=0.5) for i in range(40)]
    spread = dense_spread(found, [*quiet, *loud])
    assert spread.noise * spread.scale < 0.05
    assert spread.communication > 0.1


def test_intervals_hold_nine_of_ten_whatever_the_shape_of_the_errors(found: Calibration):
    # 90 errors of 1 to 4 %, 10 of 30 %: a normal of their variance would be 0.1 wide, 0.16 for 90 %
    errors = [0.01 + 0.03 * i / 89 for i in range(90)] + [0.3] * 10
    rows = [left_of(found, error, near=0.0) for error in errors]
    assert dense_spread(found, rows).half(rows[0], 0.0) == pytest.approx(
        0.3
    )  # of 101 the 91st may be one of them
    assert dense_spread(found, rows[:-2]).half(rows[0], 0.0) == pytest.approx(0.04)


def test_intervals_hold_rows_that_nothing_was_fitted_to(found: Calibration):
    fitted = [left_of(found, 0.02 * (-1) ** i) for i in range(40)]
    others = [replace(left_of(found, 0.05 * (-1) ** i), near=0.0) for i in range(40)]
    wide, narrow = dense_spread(found, fitted, others), dense_spread(found, fitted)
    assert wide.scale * wide.noise > narrow.scale * narrow.noise


def test_what_a_fit_knows_of_its_constants():
    # one constant, a row with slope 2 and pull 0.75: precision 1 + 0.75 x 4 = 4, deviation 1 / 2 for a slope of 1
    root = precision_root([[2.0, 0.0]], [0.75], 2)
    assert deviation(root, [1.0, 0.0]) == pytest.approx(0.5)
    assert deviation(root, [0.0, 3.0]) == pytest.approx(3.0)
    assert deviation(root, [1.0, 3.0]) == pytest.approx(math.hypot(0.5, 3.0))


def test_rows_say_most_of_their_own_device_and_software(found: Calibration):
    left = found.rows[0]
    assert 0.0 < left.near < left.far
    slopes = typical_slopes(found, found.rows)
    owners = {
        "common": "common",
        "architecture": left.case.architecture,
        "device": left.case.situation.cluster.device.name,
        "generation": left.case.situation.generation.name,
    }
    own = unknown(found, slopes, owners)
    for kind in ("architecture", "device", "generation"):
        assert unknown(found, slopes, owners | {kind: "unseen"}) > own


def test_the_table_widens_from_seen_to_unseen(found: Calibration):
    known = spreads_of(found)
    table = known.kinds["dense"].table
    column = known.generations.index(found.rows[0].case.situation.generation.name)
    device = found.rows[0].case.situation.cluster.device.name
    widths = [table[name][column] for name in (device, found.rows[0].case.architecture, "other")]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]
    assert table[device][column] <= table[device][-1]


def test_runs_of_new_software_widen_it_alone(found: Calibration):
    quiet = replace(found, rows=tuple(left for left in found.rows if left.case.run.id != "b-3"))
    case = found.rows[0].case
    elsewhere = outcome_of(
        Run(ROW | {"id": "n-1", "framework": "NeMo 24.12", "step_time_s": "1"}, Path())
    ).case
    assert elsewhere
    assert elsewhere.situation.generation.name != case.situation.generation.name
    new = tuple(replace(found.rows[0], case=elsewhere, without=e, by_source=e, near=0.0) for e in (0.3,) * 5)
    before, after = spreads_of(quiet), spreads_of(replace(quiet, unseen=new))
    column = before.generations.index(case.situation.generation.name)
    device = case.situation.cluster.device.name
    was, now = (known.kinds["dense"].table[device] for known in (before, after))
    assert now[column] == was[column]
    assert was[-1] < now[-1] <= MOST_UNSEEN * was[-1] + 1e-4
    share, half = unseen_held(replace(quiet, unseen=new))
    assert share in (0.0, 1.0)
    assert 0.0 < half < 0.5


def test_runs_never_fitted_to_keep_the_errors_of_the_profiles(found: Calibration):
    (left,) = with_unseen(found, [planted("u-1", 32)]).unseen
    outcome = outcome_of(left.case.run)
    assert outcome.step_error is not None
    assert left.without == left.by_source == pytest.approx(math.log1p(outcome.step_error))


def test_writing_touches_its_lines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Calibration):
    root = tmp_path / "profiles"
    for folder in ("efficiency", "calibration"):
        shutil.copytree(profiles_root() / folder, root / folder)
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    before = load_efficiency("ampere")
    once, again = (
        [path.read_bytes() for path in (*write_constants(found), write_spreads(found))] for _ in "ab"
    )
    assert once == again
    after = load_efficiency("ampere")
    assert after.scale != before.scale
    assert replace(after, scale=before.scale, kind=before.kind) == before
    assert load_generation("megatron-2025", "megatron", "0.19").kernels < 1.05
    assert load_uncertainty().fitted_architectures == ("ampere",)
    text = (root / "calibration" / "generations.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["generations"]["megatron-2022"]["about"]


def test_the_files_hold_what_the_fit_would_write():
    """Every generation, device and architecture of the files is read, and unfitted constants are 1."""
    assert load_generation("auto", "megatron", "0.19").name == "bridge-2026"
    assert load_generation("internevo-2023", "megatron", "0.19").grouped == 1.0
    assert parameters_of([]) == ()


def test_shares_held_are_told_of_rows_and_sources_left_out(found: Calibration):
    one = held(found, "dense")
    assert one
    assert one.rows == len(found.rows)
    assert 0.0 <= one.by_source <= 1.0
    assert one.by_source_half > one.by_row_half > 0.0
    assert held(found, "moe") is None
