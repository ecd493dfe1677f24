"""A report opened in a browser without a network: every view drawn, nothing asked for, nothing complained about."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.compare import compare, side
from planner.explain import explain
from planner.make_plan import make_plan
from planner.report import Reason, Reported, write_report
from planner.request import SearchRequest
from planner.situation import Situation

pytestmark = pytest.mark.system


def test_a_report_draws_all_views_offline(
    browser: Any, make_situation: Callable[..., Situation], tmp_path: Path
) -> None:
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    result = make_plan(of, SearchRequest(top_k=2))
    write_report(tmp_path / "plan.html", Reported.of_plan(of, result))
    context = browser.new_context(offline=True)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((tmp_path / "plan.html").as_uri())
    page.wait_for_selector(".foot")
    assert value(page, "step_s") == result.best.step_s
    for view in ("layout", "memory", "time", "timeline", "grid", "alternatives"):
        assert page.locator(f"#{view}").is_visible()
    page.wait_for_selector("#memory .chart canvas")
    page.click('[data-pick="1"]')
    assert value(page, "step_s") == result.alternatives[0].step_s
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file:")] == []


def test_reports_of_an_explanation_and_of_two_plans_show_why(
    browser: Any, make_situation: Callable[..., Situation], tmp_path: Path
) -> None:
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    found = explain(of, SearchRequest(), parse_strategy("tp=2"), [parse_strategy("tp=4")], max_seconds=0)
    both = compare(side(of, parse_strategy("tp=2")), side(of, parse_strategy("tp=4")))
    reports = {
        "why": Reported(of, found.plan, why=Reason.of_explanation(of, found)),
        "both": Reported(
            of, both.first.prediction, why=Reason.of_comparison(both), names=("today", "tomorrow")
        ),
    }
    context = browser.new_context(offline=True)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for name, reported in reports.items():
        write_report(tmp_path / f"{name}.html", reported)
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.wait_for_selector("#why")
        if name == "why":
            page.wait_for_selector("#why .chart canvas")
            steps = page.locator("#why table.whole >> nth=0 >> td.right[data-value]").evaluate_all(
                "cells => cells.map(cell => Number(cell.dataset.value))"
            )
            priced = [o.prediction.step_s for axis in found.axes for o in axis.alternatives if o.prediction]
            assert [step for step in steps if step in priced] == priced
        page.click('[data-pick="1"]')
        assert value(page, "step_s") == reported.candidates[1].step_s
    assert "Two plans side by side" in page.inner_text("#why")
    assert page.locator('[data-pick="1"]').inner_text() == "tomorrow"
    context.close()
    assert said == []


def value(page: Any, key: str) -> float:
    return float(page.locator(f'[data-key="{key}"]').get_attribute("data-value"))
