"""Everybody can use the page: by keyboard, on a phone, in both themes, without colours, without a mouse."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.system

Open = Callable[..., Any]


def serious(page: Any) -> list[str]:
    """What axe finds that keeps people out."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {each['nodes'][0]['target']} {each['nodes'][0]['failureSummary']}"
        for each in found
        if each["impact"] in {"serious", "critical"}
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing_serious(open_page: Open, url: str, theme: str, width: int) -> None:
    page = open_page(url, bypass_csp=True, color_scheme=theme, viewport={"width": width, "height": 844})
    page.wait_for_selector("#accuracy")
    for summary in page.locator("details.numbers summary").all():
        if summary.is_visible():
            summary.click()
    assert serious(page) == []


def test_the_theme_follows_the_system_and_the_switch_is_remembered(open_page: Open, url: str) -> None:
    page = open_page(url, color_scheme="dark")
    page.wait_for_selector("#accuracy")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    page.click("#theme")
    assert page.evaluate(theme) == "light"
    page.reload()
    page.wait_for_selector("#accuracy")
    assert page.evaluate(theme) == "light"


def test_nothing_is_wider_than_a_phone(open_page: Open, url: str) -> None:
    page = open_page(url, viewport={"width": 390, "height": 844}, has_touch=True)
    page.wait_for_selector("#accuracy")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator("#form").is_visible()  # the answer comes first; the question is one touch away
    page.click("#question > summary")
    assert page.locator("#ask").is_visible()


def test_the_keyboard_reaches_everything(first_view: Any) -> None:
    reached: set[str] = set()
    first_view.evaluate("document.body.tabIndex = -1; document.body.focus()")
    describe = """() => { const at = document.activeElement;
      return at.id || at.dataset.pick || at.dataset.value || at.getAttribute('aria-label')
        || at.textContent.slice(0, 30) }"""
    for _ in range(220):
        first_view.keyboard.press("Tab")
        reached.add(first_view.evaluate(describe))
    ids = {
        "theme",
        "model-name",
        "cluster-devices",
        "job-seq",
        "ask",
        "slider-devices",
        "slider-batch",
        "against",
    }
    assert ids | {"why-not", "explain", "export-format", "export-show", "accuracy-load"} <= reached
    assert {"optimizer_step", "stages", "3", "Zoom in"} <= reached
    assert any(name.startswith("Timeline of") for name in reached)
    assert any("devices; arrow keys" in name for name in reached)


def test_keys_move_through_the_timeline_and_the_devices(first_view: Any) -> None:
    first_view.focus("#timeline canvas")
    first_view.keyboard.press("Enter")
    first_view.keyboard.press("ArrowRight")
    first_view.keyboard.press("ArrowDown")
    assert "Stage 1: forward of micro-batch" in first_view.inner_text("#timeline .readout")
    timeline = "document.querySelector('#timeline canvas').timeline"
    before = first_view.evaluate(f"{timeline}.to - {timeline}.from")
    first_view.keyboard.press("+")
    assert first_view.evaluate(f"{timeline}.to - {timeline}.from") == pytest.approx(before / 2)
    first_view.focus("#grid canvas")
    first_view.keyboard.press("ArrowRight")
    assert "Device 1" in first_view.inner_text("#grid")
    first_view.keyboard.press("End")
    assert "Device 63" in first_view.inner_text("#grid")


def test_patterns_and_words_stand_beside_colours(first_view: Any) -> None:
    series = first_view.locator("#memory .chart").evaluate(
        "node => window.echarts.getInstanceByDom(node).getOption().series.map(s => JSON.stringify(s.itemStyle.decal))"
    )
    assert len(set(series)) == len(series)  # every cause has a pattern of its own
    assert "fits" in first_view.inner_text("#plan .verdict")
    unnamed = "all => all.filter(each => !each.closest('[aria-label]')).length"
    assert first_view.locator(".chart, canvas").evaluate_all(unnamed) == 0


def test_sixteen_thousand_devices_are_usable(open_page: Open, url: str) -> None:
    page = open_page(url)
    page.wait_for_selector("#accuracy")
    request = {
        "model": {"kind": "catalog", "name": "llama-3.1-405b"},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 16384},
        "job": {"seq_len": 8192, "global_batch": 2048, "engine": "megatron"},
        "strategy": "tp=8,pp=16",
    }
    drawn = page.evaluate(
        """async request => {
          const { ask } = await import('/page/client.js'), { gridCard } = await import('/page/grid.js');
          const card = gridCard(await ask('POST', '/v1/views', request));
          document.getElementById('grid').replaceWith(card);
          const grid = card.querySelector('canvas').grid;
          await new Promise(done => setTimeout(done, 300));
          const [x, y] = [grid.at.cell, grid.at.columns];
          grid.select(16383);
          await new Promise(done => setTimeout(done, 100));
          return { cell: x, columns: y, height: grid.canvas.clientHeight, text: card.textContent };
        }""",
        request,
    )
    assert drawn["cell"] >= 3
    assert drawn["height"] < 1200
    assert "Device 16383" in drawn["text"]
    assert "pipeline stage 15" in drawn["text"]
