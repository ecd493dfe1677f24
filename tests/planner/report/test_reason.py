"""Explanations, contrasts and comparisons as reports: the same numbers as the answer, as a page and as Markdown."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cost_models.specs.strategy import parse_strategy
from planner.cli.group import planner
from planner.compare import compare, side
from planner.explain import explain
from planner.report import Reason, Reported
from planner.report.markdown import markdown_report
from planner.report.page import MAX_BYTES, html_report
from planner.request import SearchRequest
from planner.situation import Situation

Make = Callable[..., Situation]
QUESTION = ("--model", "llama-3.2-1b", "--cluster", "dgx-h100:8", "--seq-len", "2048", "--global-batch", "32")


def data_of(page: str) -> dict[str, Any]:
    """What a page carries."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_an_explanation_stands_beside_the_views_of_plan_and_runners_up(make_situation: Make) -> None:
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    others = [parse_strategy("tp=4"), parse_strategy("pp=2")]
    made = explain(of, SearchRequest(), parse_strategy("tp=2"), others, max_seconds=0)
    reported = Reported(of, made.plan, why=Reason.of_explanation(of, made))
    page = html_report(reported)
    data = data_of(page)
    assert len(page.encode()) <= MAX_BYTES
    assert data["title"] == "The plan"
    assert data["explanation"]["summary"] == made.summary()
    assert [each["step_s"] for each in data["candidates"]] == [
        made.plan.step_s,
        *(other.prediction.step_s for other in made.runners_up),
    ]
    assert len(data["views"]) == 3
    text = markdown_report(reported)
    assert "### Why this plan" in text
    assert "### Runners-up" in text
    assert all(f"| {change.name} |" in text for change in made.sensitivity)
    assert all(line.endswith("|") for line in text.splitlines() if line.startswith("|"))
    tables = [line.count("|") for line in text.splitlines() if "→" in line and line.startswith("| ")]
    assert set(tables) == {7}


def test_two_plans_of_different_questions_are_drawn_each_in_its_own(make_situation: Make) -> None:
    small = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    large = make_situation("llama-3.2-1b", "dgx-h100", 16, seq_len=2048, global_batch=64)
    made = compare(side(small, parse_strategy("tp=2")), side(large, parse_strategy("tp=2")))
    reported = Reported(
        small, made.first.prediction, why=Reason.of_comparison(made), names=("today", "to|morrow")
    )
    data = data_of(html_report(reported))
    assert data["title"] == "today"
    assert [view["question"]["devices"] for view in data["views"]] == [8, 16]
    text = markdown_report(reported)
    assert "### today and to\\|morrow" in text
    assert made.sentence() in text.replace("\\", "")


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (("explain", "--strategy", "tp=2", "--max-seconds", "0"), "explanation", "### Why this plan"),
        (("explain", "--strategy", "tp=2", "--against", "tp=3"), "contrast", "**❌ Illegal.**"),
        (
            ("explain", "--strategy", "tp=2", "--against", "tp=4,pp=1,cp=1,zero=1"),
            "contrast",
            "### Why not tp=4",
        ),
        (("compare", "tp=2", "tp=4"), "comparison", "### tp=2 and tp=4"),
    ],
)
def test_commands_write_the_report_beside_their_answer(
    arguments: tuple[str, ...], kind: str, says: str, tmp_path: Path
) -> None:
    for name in ("why.html", "why.md"):
        given = [*arguments, *QUESTION, "--report", str(tmp_path / name), "--json"]
        result = CliRunner().invoke(planner, given)
        assert result.exit_code == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict)
    assert kind in data_of((tmp_path / "why.html").read_text())
    assert says in (tmp_path / "why.md").read_text()


def test_a_measured_run_has_no_report(tmp_path: Path) -> None:
    given = ["explain", "--measured", str(tmp_path), "--report", str(tmp_path / "x.html")]
    result = CliRunner().invoke(planner, given)
    assert result.exit_code == 2
    assert "--report shows a plan, not --measured" in result.stderr
