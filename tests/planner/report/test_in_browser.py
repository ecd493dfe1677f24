"""A report opened in a browser without a network: every view drawn, nothing asked for, nothing complained about."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.make_plan import make_plan
from planner.report import Reported, write_report
from planner.request import SearchRequest
from planner.situation import Situation

pytestmark = pytest.mark.system

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


def test_a_report_draws_all_views_offline(make_situation: Callable[..., Situation], tmp_path: Path) -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("Chromium is not installed (Debian: chromium), or name it by CHROMIUM")
    from playwright.sync_api import sync_playwright

    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    result = make_plan(of, SearchRequest(top_k=2))
    write_report(tmp_path / "plan.html", Reported.of_plan(of, result))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_context(offline=True).new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((tmp_path / "plan.html").as_uri())
        page.wait_for_selector(".foot")
        assert value(page, "step_s") == result.best.step_s
        for view in ("layout", "memory", "time", "timeline", "grid", "alternatives"):
            assert page.locator(f"#{view}").is_visible()
        assert page.locator("#memory .chart canvas").count() == 1
        page.click('[data-pick="1"]')
        assert value(page, "step_s") == result.alternatives[0].step_s
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith("file:")] == []


def value(page: Any, key: str) -> float:
    return float(page.locator(f'[data-key="{key}"]').get_attribute("data-value"))
