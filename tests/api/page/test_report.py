"""A report opened in a browser without a network: every view drawn, nothing asked for, nothing complained about."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.make_plan import make_plan
from planner.report import Reported, write_report
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


def value(page: Any, key: str) -> float:
    return float(page.locator(f'[data-key="{key}"]').get_attribute("data-value"))
