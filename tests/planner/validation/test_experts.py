"""Experts' published layouts against our plans: the page holds every question, and its parts sum to the difference."""

import re

import pytest

from cost_models.profiles import profiles_root
from planner.validation.experts import PAGE, QUESTIONS, Question, answered, page
from planner.validation.rows import read_runs


def test_the_page_holds_every_question():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == [question.title for question in QUESTIONS]


def test_parts_on_the_page_sum_to_the_difference():
    text = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^Theirs takes ([+-][0-9.]+) s \([^)]*\): (.*)$", text, re.MULTILINE)
    assert lines
    for whole, parts in lines:
        seconds = [float(part) for part in re.findall(r"([+-][0-9.]+) s ", parts)]
        assert sum(seconds) == pytest.approx(float(whole), abs=0.0006 * len(seconds))


@pytest.mark.matrix
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.title)
def test_ours_is_no_slower_or_theirs_is_at_risk(question: Question):
    rows = {run.text("id"): run for run in read_runs(profiles_root() / "published" / "runs.csv")}
    found = answered(question, rows.__getitem__)
    assert found.contrast.verdict in ("same", "slower") or found.contrast.risk()
    assert question.title in page([found])
