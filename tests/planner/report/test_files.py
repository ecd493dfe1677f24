"""Reports as files: one page that asks for nothing, and Markdown that survives any name."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BadInput
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.report import Reported, check_ending, write_report
from planner.report.bundle import bundle
from planner.report.markdown import markdown_report
from planner.report.page import MAX_BYTES, html_report
from planner.request import SearchRequest
from planner.situation import Situation

Make = Callable[..., Situation]


@pytest.fixture(scope="module")
def planned(make_situation: Make) -> Reported:
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    return Reported.of_plan(of, make_plan(of, SearchRequest(top_k=3)))


@pytest.fixture(scope="module")
def infeasible(make_situation: Make) -> Reported:
    of = make_situation("llama-3.1-70b", "dgx-h100", 1, seq_len=8192, global_batch=8)
    return Reported.of_plan(of, make_plan(of, SearchRequest(max_seconds=5)))


def data_of(page: str) -> dict[str, Any]:
    """What a page carries."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_carries_the_answer_and_the_views_of_every_layout(planned: Reported) -> None:
    page = html_report(planned)
    data = data_of(page)
    assert planned.result is not None
    assert data["candidates"][0]["step_s"] == planned.prediction.step_s
    assert len(data["views"]) == len(data["candidates"]) == 1 + len(planned.result.alternatives)
    assert data["result"]["certificate"]["meshes_total"] == planned.result.certificate.meshes_total
    assert len(page.encode()) <= MAX_BYTES


def test_a_page_names_nothing_outside_itself(planned: Reported) -> None:
    page = html_report(planned)
    own = page.replace(re.search(r"</script>\n<script>(.*?)</script>\n<script>", page, re.DOTALL)[1], "")
    assert not re.search(r"(?:src|href)=\"?(?:https?:|//|/)", own)
    assert "default-src 'none'" in page
    assert "unsafe" not in re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]


def test_a_long_timeline_and_many_stages_stay_small(make_situation: Make) -> None:
    of = make_situation("llama-3.1-405b", "dgx-h100", 512, seq_len=8192, global_batch=2048)
    page = html_report(Reported(of, evaluate(of, parse_strategy("tp=8,pp=16,vpp=4,recompute=full"))))
    assert len(page.encode()) <= MAX_BYTES
    timeline = data_of(page)["views"][0]["timeline"]
    # 512 micro-batches on dp 4, 16 ranks of 4 chunks, forward and backward
    assert timeline["operations_total"] == 512 * 16 * 4 * 2
    assert len(timeline["columns"]["rank"]) == 60_000


def test_an_infeasible_answer_is_reported_with_what_would_help(infeasible: Reported) -> None:
    data = data_of(html_report(infeasible))
    assert data["views"] == data["candidates"] == []
    assert data["result"]["status"] == "infeasible"
    text = markdown_report(infeasible)
    assert "infeasible" in text
    assert "### Smallest changes that would help" in text


def test_markdown_has_the_numbers_in_tables(planned: Reported) -> None:
    text = markdown_report(planned)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    assert f"{planned.prediction.mfu:.1%}" in text
    assert text.count("✅ fits") >= 1 + len(planned.result.alternatives)
    assert planned.prediction.strategy.text() in text


def test_names_that_are_markup_stay_text(make_situation: Make) -> None:
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    name = "</script><script>alert(1)</script> | `x` [a](b)\n# x"
    renamed = Situation(
        of.model.model_copy(update={"name": name}), of.cluster, of.job, of.engine, of.job_request
    )
    reported = Reported(renamed, evaluate(renamed, parse_strategy("tp=2")))
    page = html_report(reported)
    assert "<script>alert" not in page
    assert data_of(page)["question"]["model"] == name
    head = markdown_report(reported).splitlines()[0]
    assert head.startswith("## ")
    assert "\\`x\\`" in head
    assert "\\|" in head


def test_the_bundle_holds_every_module_once_without_imports() -> None:
    script = bundle("report")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    names = re.findall(r"^modules\.([a-z_]+) = ", script, re.MULTILINE)
    assert len(names) == len(set(names))
    assert names[-1] == "report"
    assert {"timeline", "grid", "memory", "breakdown", "alternatives"} <= set(names)


def test_the_ending_says_which_report(planned: Reported, tmp_path: Path) -> None:
    write_report(tmp_path / "plan.md", planned)
    assert (tmp_path / "plan.md").read_text().startswith("## ")
    with pytest.raises(BadInput, match=r"neither \.html nor \.md"):
        check_ending(tmp_path / "plan.pdf")
