"""The page's parts without a drawing: coordinates, cells, operations, sliders, fields; expected values by hand."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def run(browser: Any, url: str) -> Callable[..., Any]:
    """Runs a function of a module of the page."""
    page = browser.new_page()
    page.goto(f"{url}/page/icon.svg")

    def running(module: str, expression: str, *values: Any) -> Any:
        script = (
            f"async values => {{ const m = await import('{url}/page/{module}.js'); "
            f"return (m => {expression})({{ ...m, values }}) }}"
        )
        return page.evaluate(script, list(values))

    return running


@pytest.mark.parametrize(
    ("rank", "size", "stride", "coordinate", "group"),
    [
        (13, 2, 1, 1, [12, 13]),  # 13 = 6 x 2 + 1
        (13, 4, 2, 2, [9, 11, 13, 15]),  # 13 // 2 = 6, 6 mod 4 = 2; first is 13 - 2 x 2
        (13, 4, 8, 1, [5, 13, 21, 29]),
        (0, 1, 1, 0, [0]),
    ],
)
def test_coordinates_and_groups(
    run: Callable[..., Any], rank: int, size: int, stride: int, coordinate: int, group: list[int]
) -> None:
    axis = {"size": size, "stride": stride}
    assert run("ranks", "m.coordinate(...m.values)", rank, axis) == coordinate
    assert run("ranks", "m.groupOf(...m.values)", rank, axis) == group


def test_groups_in_few_words(run: Callable[..., Any]) -> None:
    words = run("ranks", "m.values.map(m.groupText)", [7], [8, 9, 10], [0, 2, 4], [0, 8, 16, 24, 32])
    assert words == ["7", "8 to 10", "0, 2, 4", "0, 8, 16 … 32"]


@pytest.mark.parametrize(
    ("devices", "domain", "width"), [(64, 8, 600), (16384, 8, 560), (12, 8, 300), (144, 72, 900)]
)
def test_every_device_has_a_cell_and_is_found_in_it(
    run: Callable[..., Any], devices: int, domain: int, width: int
) -> None:
    found = run(
        "ranks",
        """{ const [n, d, w] = m.values, at = m.cells(n, d, w), seen = new Set();
          for (let rank = 0; rank < n; rank += 1) {
            const [x, y] = m.corner(rank, at);
            seen.add(`${x},${y}`);
            if (m.rankAt(x + at.cell / 2, y + at.cell / 2, at, n) !== rank) return rank;
            if (x + at.cell > w + 1) return `wide ${x}`;
          }
          return seen.size; }""".replace("{ const", "(() => { const", 1)
        + ")()",
        devices,
        domain,
        width,
    )
    assert found == devices


def test_strategies_keep_what_does_not_follow_from_the_number_of_devices(run: Callable[..., Any]) -> None:
    strategy = {"tp": 2, "pp": 4, "dp": 8, "dp_shard": 4, "dp_replicate": 2, "zero": 1, "stages": "8+8+8+8"}
    kept = run("sliders", "m.withoutDevices(...m.values)", strategy)
    assert kept == {"tp": 2, "pp": 4, "zero": 1, "stages": "8+8+8+8", "dp_replicate": 2}


def test_a_cluster_that_is_spelt_out_is_resized_node_by_node(run: Callable[..., Any]) -> None:
    spec = {
        "name": "mine",
        "groups": [{"device": "h100-sxm-80gb", "nodes": 2, "devices_per_node": 8}],
        "tiers": [{"name": "a"}, {"name": "b", "devices_per_domain": 16}],
    }
    request = {
        "model": {},
        "cluster": {"kind": "spec", "spec": spec},
        "job": {"global_batch": 8, "seq_len": 128},
    }
    made = run("sliders", "m.changed(...m.values)", request, {"devices": 20, "seq": 256, "batch": 16})
    assert made["cluster"]["spec"]["groups"][0] | {} == {
        "device": "h100-sxm-80gb", "nodes": 3, "devices_per_node": 8, "devices": 20
    }  # fmt: skip
    assert made["cluster"]["spec"]["tiers"] == [{"name": "a"}, {"name": "b"}]
    assert made["job"] == {"global_batch": 16, "seq_len": 256}


def test_groups_grow_together_and_only_to_whole_devices_and_replicas(run: Callable[..., Any]) -> None:
    groups = [
        {"device": "a100-sxm-80gb", "nodes": 1, "devices_per_node": 8},
        {"device": "h100-sxm-80gb", "nodes": 2, "devices_per_node": 8},
    ]
    cluster = {
        "kind": "spec",
        "spec": {"name": "mine", "groups": groups, "tiers": [{"name": "a"}, {"name": "b"}]},
    }
    request = {"model": {}, "cluster": cluster, "job": {"global_batch": 8}}
    made = run("sliders", "m.changed(...m.values)", request, {"devices": 36, "seq": None, "batch": 8})
    # 36 / 24 = 1.5: 12 of two nodes of 8, and 24 in three
    assert [(g["nodes"], g.get("devices")) for g in made["cluster"]["spec"]["groups"]] == [(2, 12), (3, None)]
    pipeline = {"tp": 1, "cp": 1, "pp": 3, "groups": "a100*1+h100*2"}
    beside = {"tp": 2, "cp": 1, "pp": 2, "groups": "a100/h100*2"}
    shares = [1.5, 0.125, 0.0625, 0.5]
    assert [run("sliders", "m.divides(...m.values)", cluster, pipeline, share) for share in shares] == [
        True, True, False, True,  # 8 x 0.0625 is half a device
    ]  # fmt: skip
    # replicas of 2 x 2 lie whole inside a group: 12, 1 and 4 of the first
    assert [run("sliders", "m.divides(...m.values)", cluster, beside, share) for share in (1.5, 0.125, 0.5)] == [
        True, False, True,
    ]  # fmt: skip


def test_cluster_files_are_read_as_toml(run: Callable[..., Any]) -> None:
    text = (ROOT / "tests" / "docs" / "workbench" / "cluster.toml").read_text(encoding="utf-8")
    rich = """
        a.b = 'x # y'   # a comment
        "c d" = "q \\" r"
        n = [1, 2_000,
             3e-6]      # goes on
        t = { x = true, y = [{ z = -1.5 }] }
        [one]
        k = 1
        [[one.many]]
        k = 2
        [[one.many]]
        k = 3
    """
    for each in (text, rich):
        assert run("fields", "m.pasted({ value: m.values[0] }, 'cluster')", each) == tomllib.loads(each)
    with pytest.raises(Exception, match=r"cluster does not parse \(line 2: .*\); paste the whole file"):
        run("fields", "m.pasted({ value: m.values[0] }, 'cluster')", "a = 1\nb = two words")


def test_pins_and_values_are_read_as_they_are_written(run: Callable[..., Any]) -> None:
    pins = run("fields", "m.pinsOf({ value: m.values[0] })", "tp=8, mbs=1,2,4; schedule=gpipe\nsp=false")
    assert pins == {"tp": 8, "mbs": "1,2,4", "schedule": "gpipe", "sp": False}
    assert run("fields", "m.values.map(m.scalar)", "1.5", "true", "flash", "") == [1.5, True, "flash", ""]


def test_events_are_read_from_their_lines(run: Callable[..., Any]) -> None:
    text = 'id: 3\nevent: progress\ndata: {"gap": 0.5}'
    assert run("client", "m.eventOf(m.values[0])", text) == {
        "id": "3",
        "kind": "progress",
        "data": {"gap": 0.5},
    }
    assert run("client", "m.eventOf(m.values[0])", ": keep-alive") is None


def test_a_stage_ends_with_its_reduction_optimizer_and_what_all_wait_for(run: Callable[..., Any]) -> None:
    rank = {"rank": 0, "reduction_exposed_s": 1.0, "tail_s": 3.0}
    data = {
        "columns": {"rank": [0, 0], "end_s": [4.0, 10.0]},
        "barrier_s": 11.0, "optimizer_s": [2.0], "tail_end_s": 14.0, "fixed_s": 0.5, "straggler_s": 0.25,
    }  # fmt: skip
    parts = run("operations", "m.tailOf(...m.values)", data, rank)
    assert [(p["start"], p["end"]) for p in parts] == [
        (10, 11),
        (11, 13),
        (13, 14),
        (14, 14.5),
        (14.5, 14.75),
    ]


def test_numbers_are_written_for_people(run: Callable[..., Any]) -> None:
    shown = run("base", "[m.gib(68.5 * 2 ** 30), m.seconds(0.00123), m.percent(0.504), m.traffic(6.36e11)]")
    assert shown == ["68.50 GiB", "1.23 ms", "50.4 %", "636 GB"]
    assert run("base", "m.values.map(m.seconds)", 59, 0.9996, 4, 1234.5, 0) == [
        "59.0 s",
        "1.00 s",
        "4.00 s",
        "1,235 s",
        "0 s",
    ]
    assert run("timeline", "m.values.map(m.niceStep)", 0.7, 1.1, 23, 60) == [1, 2, 50, 100]


def test_events_of_a_run_are_lines_in_words(run: Callable[..., Any]) -> None:
    step = (
        '{"event": "step", "step": 2, "step_s": 0.5, "loss": 6.25, "tokens_per_s": 1024.0, "unit": "tokens"}'
    )
    lines = [step, "plain {", '{"event": "end", "attempt": 0, "position": {"a": 1}}']
    assert run("runs", "m.values.map(m.readable)", *lines) == [
        "step 2: 500 ms, loss 6.2500, 1,024 tokens/s",
        "plain {",
        "end: attempt 0",
    ]
