"""The loop with a profiler and an executor of the test's own: every layout stands beside its prediction."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cost_models.profiles import Point, read_profile
from planner.errors import RunFailed
from planner.evaluation import evaluate
from planner.executor.request import RunOrder
from planner.loop import LoopOptions, layouts, run_loop, summarise
from planner.loop import run as loop_run
from planner.loop.cases import micro_batches, request_of, tensor_parallel
from planner.loop.summary import LoopRow

EXAMPLE = next((Path(__file__).parents[2] / "data" / "measured" / "h200-sxm").iterdir())


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[RunOrder]:
    """Runs that take twice their prediction; tensor parallelism fails."""
    seen: list[RunOrder] = []

    def ran(order: RunOrder) -> SimpleNamespace:
        seen.append(order)
        if order.strategy.tp > 1:
            raise RunFailed(1, 7, "planted")
        found = evaluate(order.situation, order.strategy)
        # every process has as many threads as its share of the cores, so that all work where they go round
        share = max(loop_run.host_cores() // order.world_size, 1)
        cores = min(loop_run.host_cores(), order.world_size * share)
        return SimpleNamespace(
            prediction=found,
            step_s=2.0 * found.step_s,
            processor_s=found.step_s * cores,
            peak_by_rank=(found.memory.peak_allocated_bytes,),
        )

    monkeypatch.setattr(loop_run, "run_order", ran)
    monkeypatch.setattr(loop_run, "profile_device", lambda *args, **more: read_profile(EXAMPLE))
    return seen


def test_a_dozen_layouts_and_the_best_plans_run(orders: list[RunOrder]):
    events = []
    found = run_loop(LoopOptions(small=True), events.append)
    assert len(found.rows) >= len(layouts()) >= 12
    assert {row.processes for row in found.rows} == {1, 2, 4}
    assert any(row.planned for row in found.rows)
    assert sum(event["event"] == "layout" for event in events) == len(found.rows)
    ran = [row for row in found.rows if not row.failure]
    assert all(row.ratio == pytest.approx(0.5) and row.busy_ratio == pytest.approx(1.0) for row in ran)
    failed = [row for row in found.rows if row.failure]
    assert {row.group for row in failed} >= {"tp"}
    assert all("planted" in row.failure for row in failed)
    assert found.summary.correlation == pytest.approx(1.0)
    assert found.summary.errors["single"] == pytest.approx(0.5)
    assert found.summary.failed == len(failed)


def test_layouts_can_be_chosen_and_time_ends_it(orders: list[RunOrder]):
    few = run_loop(LoopOptions(small=True, only="fsdp", most=1))
    assert [row.group for row in few.rows] == ["fsdp"]
    late = run_loop(LoopOptions(small=True, minutes=1e-9, most=2))
    assert [row.failure for row in late.rows] == ["not begun within 1e-09 minutes"] * 2


def test_an_interrupted_profile_ends_the_loop(orders: list[RunOrder], monkeypatch: pytest.MonkeyPatch):
    example = read_profile(EXAMPLE)
    cut = Point(kind="fact", name="not_run", features={"value": 0.0}, label="interrupted")
    broken = replace(example, points=(*example.points, cut))
    monkeypatch.setattr(loop_run, "profile_device", lambda *args, **more: broken)
    with pytest.raises(KeyboardInterrupt):
        run_loop(LoopOptions(small=True))
    assert not orders


def test_the_profile_is_asked_for_the_shapes_of_the_layouts():
    assert micro_batches() == (1, 2, 4)
    assert tensor_parallel() == (1, 2)
    for layout in layouts():
        request = request_of(layout)
        assert request.job.global_batch == layout.global_batch


def row(group: str, predicted: float, measured: float) -> LoopRow:
    return LoopRow(
        "x", "torch", 2, group, False, predicted, measured_step_s=measured, busy_step_s=measured / 2
    )


def test_errors_are_medians_of_each_kind():
    # |0.9 - 1|, |1.2 - 1|, |1.5 - 1| -> 0.2; busy ratios are twice as large
    rows = [row("pp", 0.9, 1.0), row("pp", 1.2, 1.0), row("pp", 3.0, 2.0), row("tp", 4.0, 4.0)]
    found = summarise([*rows, LoopRow("y", "torch", 2, "pp", False, failure="no")])
    assert found.errors == {"pp": pytest.approx(0.2), "tp": 0.0}
    assert found.busy_errors["tp"] == pytest.approx(1.0)
    assert (found.ran, found.failed) == (4, 1)
    assert found.to_json()["limits"] == {"pp": 0.25, "tp": 0.25}
