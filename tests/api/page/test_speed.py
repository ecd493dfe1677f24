"""How soon the page is there, and how soon a slider answers."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.bench]

FIRST_VIEW_S = 1.0
SLIDER_MS = 150.0
FRAME_MS = 33.0


def test_first_view_and_sliders(
    open_page: Callable[..., Any], url: str, record_property: Callable[[str, object], None]
) -> None:
    open_page(url).wait_for_selector("#accuracy")  # the server has read its curves
    page = open_page(url)
    page.wait_for_selector("#accuracy")
    drawn = page.evaluate("performance.getEntriesByName('answer')[0].startTime") / 1000.0
    record_property("first_view_s", drawn)
    taken = []
    page.focus("#slider-batch")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        page.wait_for_timeout(700)
        page.keyboard.press(key)
        page.wait_for_timeout(700)
        taken.append(float(page.evaluate("document.querySelector('#whatif [data-ms]').dataset.ms")))
    record_property("slider_ms", max(taken))
    assert drawn < FIRST_VIEW_S
    assert max(taken) < SLIDER_MS


def test_sixteen_stages_of_120_micro_batches_and_16384_devices_are_drawn_in_a_frame(
    open_page: Callable[..., Any], url: str, record_property: Callable[[str, object], None]
) -> None:
    page = open_page(url)
    page.wait_for_selector("#accuracy")
    request = {
        "model": {"kind": "catalog", "name": "llama-3.1-405b"},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 16384},
        "job": {"seq_len": 8192, "global_batch": 15360, "engine": "megatron"},
        "strategy": "tp=8,pp=16",
    }
    found = page.evaluate(
        """async request => {
          const { ask } = await import('/page/client.js'), { viewCards } = await import('/page/views.js');
          const cards = viewCards(await ask('POST', '/v1/views', request), null);
          for (const key of ['timeline', 'grid']) document.getElementById(key).replaceWith(cards[key]);
          await new Promise(done => setTimeout(done, 500));
          const drawing = [cards.timeline.querySelector('canvas').timeline, cards.grid.querySelector('canvas').grid];
          const spent = drawing.map(each => {
            const all = [];
            for (let i = 0; i < 9; i += 1) { each.draw(); all.push(each.drawnMs); }
            return all.sort((a, b) => a - b)[4];
          });
          return { timeline: spent[0], grid: spent[1], operations: drawing[0].data.operations_total };
        }""",
        request,
    )
    assert found["operations"] == 16 * 120 * 2
    record_property("timeline_ms", found["timeline"])
    record_property("grid_ms", found["grid"])
    assert max(found["timeline"], found["grid"]) < FRAME_MS
