"""A model's own layers as cases, and the table that puts them beside their prediction."""

from pathlib import Path

import pytest
import torch

from cost_models.profiler.site import Site
from cost_models.profiler.writer import write_profile
from cost_models.profiles import MEASURED_VARIABLE, Point, read_profile
from planner.executor.profiled.describe import profile_json
from planner.executor.profiled.layers import (
    bench_of,
    chunk_of,
    divided_cases,
    layer_cases,
    operator_cases,
    saved_bytes,
)
from planner.executor.profiled.order import ProfiledModel, ProfileOrder
from planner.executor.profiled.table import layer_table, median_error
from planner.loop.cases import Place
from planner.loop.cpu_layouts import CPU_LAYOUTS
from planner.plan_file import resolved_request
from planner.request import SearchRequest
from planner.situation import Situation

EXAMPLE = next((Path(__file__).parents[2] / "data" / "measured" / "h200-sxm").iterdir())
SITE = Site(torch.device("cpu"), "fp32")


@pytest.fixture(scope="module")
def situation() -> Situation:
    return Place(small=True).situation(CPU_LAYOUTS[0])


def test_every_operator_of_every_layer_is_a_case_that_runs(situation: Situation):
    bench = bench_of(situation, SITE, 2, chunk_of(situation, SITE))
    cases = [*operator_cases(bench), *layer_cases(bench)]
    names = {(case.point.name, case.point.phase) for case in cases}
    for family in (
        "gemm",
        "attention",
        "norm:rms",
        "activation:silu:gated",
        "residual",
        "rope",
        "embedding",
        "cross_entropy",
    ):
        assert any(name == family for name, _ in names), family
    assert {("gemm", phase) for phase in ("forward", "input_gradient", "weight_gradient")} <= names
    assert {
        (kind, phase) for kind in ("embedding", "dense", "head") for phase in ("forward", "backward")
    } <= names
    for case in cases:
        work = case.make()
        work()
        work()  # a second time, as bursts do
    # whole layers weigh nothing by themselves, operators what they count for
    assert all(case.weight > 0.0 for case in cases if case.point.kind == "kernel")


def test_divided_products_have_the_shapes_of_a_rank(situation: Situation):
    shapes = {
        tuple(case.point.features[size] for size in ("m", "n", "k"))
        for case in divided_cases(situation, SITE, 2, 2)
        if case.point.phase == "forward"
    }
    # 2 x 32 tokens; gate and up of 64 -> 2 x 128 over two ranks, down of 128 / 2 -> 64, the head over half of 256 words
    assert {(64.0, 128.0, 64.0), (64.0, 64.0, 64.0)} <= shapes


def test_what_a_layer_saves_is_what_is_counted(situation: Situation):
    bench = bench_of(situation, SITE, 1, chunk_of(situation, SITE))
    saved = {layer.kind: saved_bytes(bench, index) for index, layer in enumerate(bench.layers)}
    profile = layers_profile(saved, situation)
    rows = {row.kind: row for row in layer_table(profile, situation) if row.phase == "forward"}
    assert rows["dense"].saved_bytes == pytest.approx(rows["dense"].predicted_saved_bytes, rel=0.06)


def layers_profile(saved: dict[str, float], situation: Situation):
    """A profile whose layers took a millisecond forward and two back."""
    example = read_profile(EXAMPLE)
    points = [
        Point(
            kind="layer",
            name=kind,
            phase=phase,
            precision="fp32",
            features={"sequences": 1.0, "tokens": 32.0, "saved_bytes": value},
            seconds=seconds,
            low_s=0.9 * seconds,
            high_s=1.1 * seconds,
            label=f"{situation.model.name} s{situation.job.seq_len} mbs=1",
        )
        for kind, value in saved.items()
        for phase, seconds in (("forward", 1e-3), ("backward", 2e-3))
    ]
    return type(example)(example.folder, example.manifest, tuple(points))


def test_the_table_has_rates_bytes_and_ratios(
    situation: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(MEASURED_VARIABLE, "")
    profile = layers_profile({"dense": 1e5}, situation)
    forward, backward = layer_table(profile, situation)
    assert (forward.phase, backward.phase) == ("forward", "backward")
    assert forward.half_width == pytest.approx(0.1)
    assert forward.flops_per_s > 0.0
    # input and weight gradients of products make twice the forward's FLOP, flash attention 2.5 times
    assert 4.0 < 2 * 2 * backward.flops_per_s / forward.flops_per_s < 5.5
    assert forward.ratio == pytest.approx(forward.predicted_s / 1e-3)
    assert layer_table(profile, situation, processes=2) == ()
    assert median_error([]) is None
    folder = tmp_path / "profile"
    write_profile(folder, profile.manifest, profile.points)
    order = ProfileOrder(models=(ProfiledModel(request=resolved_request(situation, SearchRequest())),))
    answer = profile_json(read_profile(folder), order)
    assert len(answer["layers"]) == 2
    assert answer["layer_median_error"] == pytest.approx(
        (abs(forward.ratio - 1.0) + abs(backward.ratio - 1.0)) / 2.0
    )
