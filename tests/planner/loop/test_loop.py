"""The loop with a profiler and an executor of the test's own: every layout stands beside its prediction."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cost_models.profiles import MEASURED_VARIABLE, MeasuredProfile, Point, read_profile
from cost_models.specs.strategy import parse_strategy
from planner.errors import RunFailed
from planner.evaluation import evaluate
from planner.executor.profiled.order import ProfileOrder
from planner.executor.profiled.seen import SeenDevice, cluster_of_device
from planner.executor.request import RunOrder
from planner.loop import LoopOptions, LoopRow, measure, run_loop, summarise
from planner.loop import run as loop_run
from planner.loop.cases import Place, sizes
from planner.loop.cpu_layouts import CPU_LAYOUTS
from planner.loop.gpu_layouts import gpu_layouts
from planner.loop.summary import rank_correlation
from planner.render.loop import show_loop

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
        share = max(measure.host_cores() // order.world_size, 1)
        cores = min(measure.host_cores(), order.world_size * share)
        return SimpleNamespace(
            prediction=found,
            step_s=2.0 * found.step_s,
            processor_s=found.step_s * cores,
            peak_by_rank=(found.memory.peak_allocated_bytes,),
            reserved_by_rank=(2 * found.memory.peak_reserved_bytes,),
        )

    monkeypatch.setattr(measure, "run_order", ran)
    monkeypatch.setattr(loop_run, "seen_device", lambda: SeenDevice("cpu", 0, ""))
    monkeypatch.setattr(loop_run, "profile_device", lambda *args, **more: read_profile(EXAMPLE))
    return seen


def test_a_dozen_layouts_and_the_best_plans_run(orders: list[RunOrder]):
    events = []
    found = run_loop(LoopOptions(small=True), events.append)
    assert len(found.rows) >= len(CPU_LAYOUTS) >= 12
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
    assert found.summary.memory_error == pytest.approx(0.0)
    assert found.summary.reserved_error == pytest.approx(0.5)


def test_a_step_without_the_profile_is_the_formulas(monkeypatch: pytest.MonkeyPatch):
    device = SeenDevice("h200-sxm", 1, "9.0")
    place, layout = Place(cluster_of_device(device)["spec"]), gpu_layouts()[0]
    monkeypatch.setenv(MEASURED_VARIABLE, str(EXAMPLE.parents[1]))
    measured = evaluate(place.situation(layout), parse_strategy(layout.strategy)).step_s
    without = measure._without_profile(layout, place, parse_strategy(layout.strategy))
    assert without > 0.0
    assert abs(without / measured - 1.0) > 1e-3  # the profile says something else
    assert os.environ[MEASURED_VARIABLE] == str(EXAMPLE.parents[1])


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


def test_a_gpus_layouts_are_recompute_and_micro_batches_of_four_models(
    orders: list[RunOrder], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked = []

    def profiled(order: ProfileOrder, *args: object, **more: object) -> MeasuredProfile:
        asked.append((order, more["alone"]))
        return read_profile(EXAMPLE)

    monkeypatch.setattr(loop_run, "seen_device", lambda: SeenDevice("h200-sxm", 1, "9.0"))
    monkeypatch.setattr(loop_run, "profile_device", profiled)
    found = run_loop(LoopOptions(only="mbs=2,recompute=full"))
    assert [row.model.partition(" ")[0] for row in found.rows] == [
        "llama-3.1-8b", "olmoe-1b-7b", "deepseek-v2-lite",
    ]  # fmt: skip
    assert {order.situation.cluster.device.name for order in orders} == {"h200-sxm"}
    assert {order.situation.job.precision.value for order in orders} == {"bf16"}
    assert set(found.summary.errors) == {"dense", "experts", "latent"}
    order, alone = asked[0]
    assert alone
    # Llama-3.2-1B at 2,048 runs with micro-batches of 1, 2 and 4; a model stands once for each length
    assert [model.micro_batches for model in order.models] == [(1, 2, 4), (1,), (1, 2), (1,), (1, 2), (1, 2)]
    payload = {"profile": "p", "complete": True, "load_before": 0.0, "wall_s": 1.0, "layers": []}
    show_loop(payload | {"rows": [row.to_json() for row in found.rows], "summary": found.summary.to_json()})
    assert "olmoe-1b-7b" in capsys.readouterr().out


def test_the_profile_is_asked_for_the_shapes_of_the_layouts():
    assert sizes(CPU_LAYOUTS, "mbs") == (1, 2, 4)
    assert sizes(CPU_LAYOUTS, "tp") == (1, 2)
    for small in (False, True):
        for layout in (*CPU_LAYOUTS, *gpu_layouts()):
            assert Place(small=small).situation(layout).job.global_batch == layout.global_batch


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_gpus_models_are_proved_on_a_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    options = LoopOptions(
        minutes=4.0,
        profile_share=0.0125,
        steps=2,
        small=True,
        output=tmp_path,
        layouts=gpu_layouts(),
        only="mbs=2,recompute=full",
    )
    found = run_loop(options)
    assert len(found.rows) == 3  # dense, a mixture of experts, latent attention
    assert all(row.measured_bytes > 0 and not row.failure for row in found.rows)
    assert found.profile.points
    assert not found.profile.manifest.complete


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == 1.0
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0
    # Ranks 0 1 2 3 and 1 0 2 3: 1 - 6 (1 + 1) / (4 * 15) = 0.8
    assert rank_correlation([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0]) == pytest.approx(0.8)
    assert rank_correlation([1.0, 2.0], [1.0, 2.0]) is None


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
