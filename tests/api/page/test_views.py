"""Every view shows what the service answers: the numbers behind the pictures are the API's, to the last digit."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.system

Until = Callable[[Any, str], None]

GIB = 1024**3
CHART = "node => window.echarts.getInstanceByDom(node).getOption()"
SMALL = {
    "model": {"kind": "catalog", "name": "llama-3.2-1b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
    "job": {"seq_len": 2048, "global_batch": 32, "engine": "megatron"},
}


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """The service's own answer."""
    answer = httpx2.get(url + path) if body is None else httpx2.post(url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown_request(page: Any) -> dict[str, Any]:
    """The question whose answer is shown, as the page sends it."""
    request: dict[str, Any] = page.evaluate("planner.shown.request")
    return {key: request[key] for key in ("model", "cluster", "job")}


def evaluation(page: Any, url: str, index: int = 0) -> dict[str, Any]:
    """What the service predicts for a layout that is shown."""
    strategy = page.evaluate("index => planner.candidates()[index].strategy", index)
    found: dict[str, Any] = ask(url, "/v1/evaluations", shown_request(page) | {"strategies": [strategy]})
    prediction: dict[str, Any] = found["items"][0]["evaluation"]
    return prediction


def option(page: Any, selector: str) -> Any:
    """What a chart was told to draw."""
    return page.locator(selector).first.evaluate(CHART)


def value(page: Any, key: str) -> float:
    return float(page.locator(f'[data-key="{key}"]').first.get_attribute("data-value"))


def table_values(page: Any, section: str) -> list[list[float]]:
    """The exact numbers of the table under a chart, row by row."""
    details = page.locator(f"#{section} details.numbers").last
    if details.get_attribute("open") is None:
        details.locator("summary").click()
    rows = details.locator("tbody tr")
    rows.first.wait_for()
    read = "row => [...row.querySelectorAll('td[data-value]')].map(cell => Number(cell.dataset.value))"
    return [row.evaluate(read) for row in rows.all()]


def test_the_first_answer_is_there_and_is_the_services(first_view: Any, url: str) -> None:
    found = evaluation(first_view, url)
    assert value(first_view, "step_s") == pytest.approx(found["step_s"], rel=1e-12)
    assert value(first_view, "mfu") == pytest.approx(found["mfu"], rel=1e-12)
    assert value(first_view, "memory") == pytest.approx(found["memory"]["device_used_bytes"], rel=1e-12)
    assert "Proved optimal" in first_view.inner_text("#plan")


def test_memory_of_every_stage_and_phase_is_the_services(first_view: Any, url: str) -> None:
    stages = evaluation(first_view, url)["memory"]["stages"]
    drawn = {s["name"]: s["data"] for s in option(first_view, "#memory .chart")["series"]}
    for cause in ("weights", "gradients", "optimizer", "activations"):
        assert drawn[cause] == pytest.approx([stage["by_cause"][cause] / GIB for stage in stages])
    for phase, keys in {"optimizer_step": ["optimizer_step"], "running": ["loss", "backward"]}.items():
        first_view.click(f'#memory button[data-value="{phase}"]')
        rows = table_values(first_view, "memory")
        for row, stage in zip(rows, stages, strict=True):
            causes = next(stage["by_phase_cause"][key] for key in keys if key in stage["by_phase_cause"])
            assert row[-2] == pytest.approx(sum(causes.values()), rel=1e-12)
            assert row[0] == causes["weights"]
            assert row[3] == causes["activations"]


def test_the_steps_time_adds_up(first_view: Any, url: str) -> None:
    found = evaluation(first_view, url)
    drawn = [each["value"] for each in option(first_view, "#time .chart")["series"][0]["data"]]
    assert sum(drawn) == pytest.approx(found["step_s"], rel=1e-9)
    assert drawn == sorted((v for v in found["breakdown_s"].values() if v > 0), reverse=True)
    first_view.click('#time button[data-value="stages"]')
    made = ask(url, "/v1/simulations", shown_request(first_view) | {"strategy": found["strategy"]})
    series = option(first_view, "#time .chart")["series"]
    assert series[0]["data"] == pytest.approx([rank["busy_s"] for rank in made["ranks"]])
    assert series[-1]["data"] == pytest.approx([rank["bubble_s"] for rank in made["ranks"]])


def test_the_timeline_is_the_simulations(until: Until, first_view: Any, url: str) -> None:
    canvas = "document.querySelector('#timeline canvas').timeline"
    until(first_view, f"{canvas}.data.columns.rank.length === {canvas}.data.operations_total")
    found = evaluation(first_view, url)
    made = ask(url, "/v1/simulations", shown_request(first_view) | {"strategy": found["strategy"]})
    assert first_view.evaluate(f"{canvas}.data.operations_total") == made["operations"]
    assert first_view.evaluate(f"{canvas}.data.bubble_s") == pytest.approx(made["bubble_s"])
    # the last thing on every line ends with the step
    ends = first_view.evaluate(f"{canvas}.lines.map(line => line.at(-1).end)")
    assert ends == pytest.approx([found["step_s"]] * len(ends))
    overlaps = (
        f"{canvas}.lines.flatMap(l => l.slice(1).filter((each, i) => each.start < l[i].end - 1e-6)).length"
    )
    assert first_view.evaluate(overlaps) == 0


def test_a_device_shows_its_groups_links_and_traffic(first_view: Any, url: str) -> None:
    found = evaluation(first_view, url)
    view = ask(url, "/v1/views", shown_request(first_view) | {"strategy": found["strategy"]})
    axes = {axis["axis"]: axis for axis in view["grid"]["axes"]}
    s = found["strategy"]
    assert [axes[key]["size"] for key in ("tp", "cp", "dp", "pp")] == [s["tp"], s["cp"], s["dp"], s["pp"]]
    last = view["grid"]["devices"] - 1
    first_view.fill("#grid input[type=number]", str(last))
    text = first_view.inner_text("#grid")
    assert f"Device {last}" in text
    assert f"pipeline stage {s['pp'] - 1}" in text
    sent = first_view.locator("#grid td[data-value]").evaluate_all(
        "all => all.map(x => Number(x.dataset.value))"
    )
    expected = [axes[key]["sent_bytes"][-1] for key in ("tp", "cp", "dp", "pp") if axes[key]["size"] > 1]
    assert sent == pytest.approx(expected)


def test_every_axis_is_drawn_and_told_with_its_numbers(first_view: Any, url: str) -> None:
    found = evaluation(first_view, url)
    s, seconds = found["strategy"], found["breakdown_s"]
    cards = first_view.locator("#layout .axis-card")
    titles = [text.split("\n")[0] for text in cards.all_inner_texts()]
    assert f"Tensor parallel {s['tp']}" in titles
    assert f"Context parallel {s['cp']}" in titles
    assert any(title.startswith(f"Pipeline {s['pp']}") for title in titles)
    assert cards.locator("svg.scheme").count() == cards.count()
    share = f"({100 * seconds['tp_communication'] / found['step_s']:.1f} %)"
    assert share in cards.first.inner_text()
    assert (
        sum(len(rank) for rank in first_view.evaluate("planner.shown.views[0].grid.stages"))
        == s["pp"] * s["vpp"]
    )


def test_alternatives_can_be_chosen_and_fill_every_view(until: Until, first_view: Any, url: str) -> None:
    points = option(first_view, "#alternatives .chart")["series"][0]["data"]
    known = first_view.evaluate("planner.candidates().map(each => each.step_s)")
    assert [point["value"][0] for point in points] == known
    first_view.click('[data-pick="2"]')
    until(first_view, "document.querySelector('#plan h2').textContent.includes('#3')")
    found = evaluation(first_view, url, 2)
    assert value(first_view, "step_s") == pytest.approx(found["step_s"], rel=1e-12)
    drawn = option(first_view, "#memory .chart")["series"][0]["data"]
    assert drawn == pytest.approx([stage["by_cause"]["weights"] / GIB for stage in found["memory"]["stages"]])


def test_sliders_reprice_the_known_layouts(until: Until, first_view: Any, url: str) -> None:
    first_view.wait_for_selector('[data-key="whatif-step"]')
    first_view.focus("#slider-devices")
    first_view.keyboard.press("ArrowRight")
    first_view.wait_for_selector("#search-again")
    devices = int(first_view.inner_text("#whatif output").replace(",", ""))
    request = shown_request(first_view)
    assert devices > request["cluster"]["devices"]
    strategy = first_view.evaluate("planner.candidates()[0].strategy")
    kept = {key: v for key, v in strategy.items() if key not in {"dp", "dp_shard", "dp_replicate"}}
    body = request | {"cluster": request["cluster"] | {"devices": devices}, "strategies": [kept]}
    found = ask(url, "/v1/evaluations", body)["items"][0]["evaluation"]
    until(
        first_view, f"document.querySelector('[data-key=whatif-step]').dataset.value == {found['step_s']!r}"
    )
    assert value(first_view, "whatif-memory") == found["memory"]["device_used_bytes"]


def test_why_not_has_an_answer_with_its_numbers(first_view: Any) -> None:
    first_view.fill("#against", "tp=3")
    first_view.click("#why-not")
    first_view.wait_for_selector('[data-verdict="illegal"]')
    first_view.fill("#against", "pp=1,cp=1")
    first_view.click("#why-not")
    first_view.wait_for_selector('[data-verdict="slower"], [data-verdict="does_not_fit"]')
    assert "GiB" in first_view.inner_text("#whynot") or "more than the plan" in first_view.inner_text(
        "#whynot"
    )


def test_settings_are_shown_as_they_are_exported(first_view: Any, url: str) -> None:
    first_view.select_option("#export-format", "megatron")
    first_view.click("#export-show")
    first_view.wait_for_selector("#export pre.file")
    body = shown_request(first_view) | {
        "strategy": evaluation(first_view, url)["strategy"],
        "format": "megatron",
    }
    files = ask(url, "/v1/exports", body)["files"]
    assert first_view.locator("#export pre.file").text_content() == files[0]["content"]


def test_accuracy_by_source_is_the_reports(first_view: Any) -> None:
    steps = {"a-1": (2.0, 2.1), "a-2": (10.0, 9.0), "b-1": (0.5, 0.5)}
    rows = [
        {"id": key, "source": key[0], "measured_step_s": m, "predicted_step_s": p, "step_error": p / m - 1}
        for key, (m, p) in steps.items()
    ]
    rows.append(rows[0] | {"id": "b-2", "measured_step_s": None, "step_error": None})
    errors = {"n": 2, "step_median_ape": 0.1, "step_mape": 0.1, "memory_mape": None, "within_interval": 1.0}
    report = {"rows": rows, "by_source": {"a": errors, "b": errors | {"n": 1}}, "summary": errors}
    first_view.route("**/v1/accuracy", lambda route: route.fulfill(json=report))
    first_view.click("#accuracy-load")
    first_view.wait_for_selector("#accuracy .chart canvas")
    drawn = option(first_view, "#accuracy .chart")["series"][1]["data"]
    assert [point["value"] for point in drawn] == [list(pair) for pair in steps.values()]
    text = first_view.inner_text("#accuracy")
    assert "3 runs with step times: half of the predictions are within 10.0 %, 100 % within 10 %" in text


def test_a_search_shows_bound_and_incumbent_until_the_answer(until: Until, first_view: Any, url: str) -> None:
    first_view.fill("#model-name", SMALL["model"]["name"])
    first_view.fill("#cluster-devices", "8")
    first_view.fill("#job-seq", "2048")
    first_view.fill("#job-batch", "32")
    first_view.click("#ask")
    until(first_view, "planner.shown.plan.request.job.global_batch === 32 && !planner.shown.stored")
    first_view.wait_for_selector("#accuracy")
    shown = first_view.evaluate("planner.shown.plan")
    kept = ask(url, f"/v1/plans/{shown['id']}")
    assert kept["state"] == "succeeded"
    assert value(first_view, "step_s") == pytest.approx(kept["result"]["best"]["step_s"], rel=1e-12)
    events = first_view.evaluate("planner.shown.events")
    assert events
    assert events[-1]["best_step_s"] == pytest.approx(kept["result"]["best"]["step_s"], rel=1e-9)
    bounds = [each["lower_bound_s"] for each in events if each["lower_bound_s"] is not None]
    assert bounds == sorted(bounds)


def test_the_fewest_devices_are_shown_as_they_are_found(until: Until, first_view: Any) -> None:
    first_view.fill("#model-name", SMALL["model"]["name"])
    first_view.fill("#cluster-devices", "4")
    first_view.fill("#job-seq", "2048")
    first_view.fill("#job-batch", "8")
    first_view.locator("#form details.numbers summary").click()
    first_view.select_option("#search-objective", "devices")
    first_view.click("#ask")
    until(first_view, "!planner.shown.stored && !!document.getElementById('accuracy')")
    changes = first_view.evaluate("planner.shown.plan.result.changes")
    devices = changes["devices"]
    assert first_view.evaluate("planner.shown.request.cluster.devices") == devices
    assert f"on {devices} \u00d7" in first_view.inner_text("#plan")
    assert "The least devices" in first_view.inner_text("#plan")


def test_a_pasted_config_and_a_drawn_cluster_are_planned(until: Until, first_view: Any) -> None:
    config = (
        '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,'
        '"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000}'
    )
    first_view.click('#form button[data-value="config"]')
    first_view.fill("#model-config", config)
    first_view.click('#form button[data-value="draw"]')
    first_view.fill("#draw-nodes", "1")
    first_view.fill("#draw-per-node", "4")
    first_view.click("text=+ another kind")
    first_view.click("text=Take this kind away")
    first_view.click("text=+ node")
    first_view.fill("#job-seq", "512")
    first_view.fill("#job-batch", "16")
    first_view.click("#ask")
    until(first_view, "planner.shown.plan.request.job.global_batch === 16")
    first_view.wait_for_selector("#accuracy")
    assert "on 8 \u00d7" in first_view.inner_text("#plan")
    first_view.wait_for_selector('[data-key="whatif-step"]')  # a cluster that is spelt out has a slider too


def test_a_cluster_of_two_kinds_is_drawn_and_planned(until: Until, first_view: Any) -> None:
    first_view.fill("#model-name", SMALL["model"]["name"])
    first_view.click('#form button[data-value="draw"]')
    first_view.fill("#draw-nodes", "1")
    first_view.click("text=+ another kind")
    first_view.click("text=\u2212 node")
    assert "16 devices, 1 node of 8 and 1 node of 8" in first_view.inner_text("#form")
    first_view.fill("#job-seq", "1024")
    first_view.fill("#job-batch", "64")
    first_view.click("#ask")
    until(first_view, "planner.shown.plan.request.job.global_batch === 64 && !planner.shown.stored")
    first_view.wait_for_selector("#accuracy")
    groups = first_view.evaluate("planner.shown.request.cluster.spec.groups")
    assert [group["device"] for group in groups] == ["h100-sxm-80gb", "a100-sxm-80gb"]
    assert "All 2 kinds of devices grow together" in first_view.inner_text("#devices-why")
    first_view.wait_for_selector('[data-key="whatif-step"]')
    first_view.focus("#slider-devices")
    first_view.keyboard.press("ArrowLeft")
    until(first_view, "document.querySelector('[data-key=\"whatif-step\"] ~ .more').textContent !== '0.0 %'")
    fewer = int(first_view.inner_text(".slider output >> nth=0"))
    grown = first_view.evaluate(
        "fewer => import('/page/sliders.js').then(m => m.changed(planner.shown.request, "
        "{ devices: fewer, seq: 1024, batch: 64 }).cluster.spec.groups)",
        fewer,
    )
    assert sum(group.get("devices", group["nodes"] * 8) for group in grown) == fewer < 16
    assert len({group.get("devices", group["nodes"] * 8) for group in grown}) == 1  # equal kinds stay equal


def test_a_run_is_followed_with_its_loss_throughput_and_log(
    until: Until, open_page: Callable[..., Any], url: str
) -> None:
    run = dict.fromkeys(("failure_code", "failure_detail", "measured", "ratio"), None)
    run |= {"id": "run_1", "plan_id": "plan_1", "state": "running", "launcher": "local", "created_at": "now"}
    run["predicted"] = {"step_s": 0.5}
    steps = [
        {"step": n, "loss": 5.0 / n, "step_s": 0.5 + n / 100, "tokens_per_s": 100.0 * n} for n in (1, 2, 3)
    ]
    asked: list[str] = []

    def answer(route: Any) -> None:
        path = route.request.url.partition("/v1/")[2]
        asked.append(path)
        if path.startswith("runs?"):
            route.fulfill(json={"items": [run], "next_cursor": None})
        elif "/metrics" in path:
            after = int(path.rpartition("=")[2])
            route.fulfill(json={"items": [s for s in steps if s["step"] > after], "next": 3})
        elif "/logs" in path:
            fresh = path.endswith("after=0")
            route.fulfill(json={"rank": None, "lines": ["step 1", "step 2"] if fresh else [], "next": 14})
        else:
            route.fulfill(json=run | {"state": "running" if len(asked) < 8 else "succeeded"})

    page = open_page("about:blank")
    page.route("**/v1/runs**", answer)
    page.goto(url)
    page.click("#runs td button")
    until(page, "document.querySelectorAll('#runs .chart canvas').length === 3")
    loss, seconds, rate = (page.locator("#runs .chart").nth(i).evaluate(CHART)["series"][0] for i in range(3))
    assert loss["data"] == [[s["step"], s["loss"]] for s in steps]
    assert seconds["data"] == [[s["step"], s["step_s"]] for s in steps]
    assert seconds["markLine"]["data"][0]["yAxis"] == 0.5
    assert rate["data"] == [[s["step"], s["tokens_per_s"]] for s in steps]
    assert page.text_content("#runs pre") == "step 1\nstep 2\n"
    until(page, "document.querySelector('#runs .row .verdict').textContent === 'succeeded'")
    count = len(asked)
    page.wait_for_timeout(1500)
    assert len(asked) == count  # a run that has ended is not asked about again
