"""Runs that nothing was fitted to: most lie in their interval, and the page and the fit keep them apart."""

import pytest

from cost_models.operators import CrossEntropy, LmHead
from cost_models.operators.base import Shard, Style
from cost_models.profiles import profiles_root
from planner.validation import validate_file
from planner.validation.calibrate import usable
from planner.validation.ranking import weak_scaling
from planner.validation.report import ValidationReport, within_interval
from planner.validation.rows import read_runs
from planner.validation.unseen_page import unseen_section

PUBLISHED = profiles_root() / "published"


@pytest.fixture(scope="module")
def report() -> ValidationReport:
    return validate_file(PUBLISHED / "unseen.csv")


def test_most_lie_in_their_interval(report: ValidationReport):
    errors = [abs(o.step_error) for o in report.outcomes if o.step_error is not None]
    assert len(errors) >= 240
    share = within_interval(report.outcomes)
    assert share is not None
    assert share >= 0.8
    assert sorted(errors)[len(errors) // 2] < 0.1


def test_a_kind_is_predicted_from_other_kinds(report: ValidationReport):
    """Thirteen runs of Narayanan et al. 2021, 1.7 to 1,008 billion parameters on 32 to 3,072 devices: other planners
    that had not seen them are 7.3 and 7.7 % off."""
    errors = [
        abs(o.step_error) for o in report.outcomes if o.run.source == "sc21" and o.step_error is not None
    ]
    assert len(errors) == 13
    assert sum(errors) / len(errors) < 0.05


def test_every_taken_knob_is_named(report: ValidationReport):
    """A row that takes a knob says so beside its prediction, where rows are read as stated otherwise."""
    for outcome in report.outcomes:
        taken = {knob.strip() for knob in outcome.run.text("assumed").split(";") if knob.strip()}
        assert taken <= set(outcome.assumed)


def test_most_losses_of_speed_on_many_devices_are_within_two_points(report: ValidationReport):
    near = [abs(one.predicted - one.measured) < 0.02 for one in weak_scaling(report.outcomes)]
    assert len(near) >= 8
    assert sum(near) >= 0.8 * len(near)


def test_none_is_fitted_to(report: ValidationReport):
    assert not any(o.case and usable(o.case) for o in report.outcomes)
    fitted = {run.id for run in read_runs(PUBLISHED / "runs.csv")}
    assert fitted.isdisjoint(o.run.id for o in report.outcomes)


def test_the_section_shows_every_run(report: ValidationReport):
    section = unseen_section(report)
    assert all(o.run.id in section for o in report.outcomes)
    assert f"{len(report.outcomes)} runs: mean error" in section
    for title in ("devices", "software", "kind, precision", "source"):
        assert f"| {title} | runs | mean |" in section


def test_a_gathered_head_makes_logits_of_its_share():
    at, style = Shard(4.0, 128.0, 128.0), Style()
    whole = LmHead(name="head", inputs=("x",), vocab_size=30522, width=1024)
    part = whole.model_copy(update={"predicted": 0.25})
    assert float(part.model_flops(at)) == 0.25 * float(whole.model_flops(at))
    assert [float(k.flops) for k in part.kernels(at, style)] == [
        0.25 * float(k.flops) for k in whole.kernels(at, style)
    ]
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=30522)
    few = loss.model_copy(update={"predicted": 0.25})
    assert float(few.saved(at, style)[0].elements) == 0.25 * float(loss.saved(at, style)[0].elements)
