"""The profiler's cases run on this processor, and stand under the sizes that the cost model counts."""

import pytest
import torch

from cost_models.operators import Norm
from cost_models.operators.base import Phase, Shard, Style
from cost_models.profiler.case import Case
from cost_models.profiler.clocks import ProcessorClock, WallClock, clock_of
from cost_models.profiler.collectives import group_sizes
from cost_models.profiler.facts import memory_facts
from cost_models.profiler.features import operator_points, product_features
from cost_models.profiler.machine import catalog_name, machine, versions
from cost_models.profiler.products import (
    attention_cases,
    convolution_cases,
    gemm_case,
    gemm_grid,
    grouped_cases,
)
from cost_models.profiler.site import Site
from cost_models.profiler.traffic import copy_cases, traffic_cases

CPU = Site(torch.device("cpu"), "fp32")
SMALL = 3e8
"""FLOP and bytes of the cases that are run here."""


def every_case() -> list[Case]:
    parts = (gemm_grid, grouped_cases, attention_cases, convolution_cases, traffic_cases, copy_cases)
    return [case for part in parts for case in part(CPU)]


def test_the_grid_covers_every_family_of_kernels():
    cases = every_case()
    assert len({case.key for case in cases}) == len(cases)
    names = {case.point.name.partition(":")[0] for case in cases}
    wanted = "gemm grouped_gemm attention convolution norm activation residual rope embedding cross_entropy"
    assert names >= {*wanted.split(), "copy", "accumulate", "optimizer", "launch", "backend"}


def test_small_cases_of_every_kind_run():
    ran = set()
    for case in every_case():
        size = max(case.point.features.get("flops", 0.0), 10 * case.point.features.get("bytes", 0.0))
        kind = (case.point.name, case.point.phase)
        if size > SMALL or kind in ran:
            continue
        try:
            case.make()()
        except RuntimeError:  # a kernel of torch's that only accelerators have
            assert case.point.name.startswith("backend:")
        ran.add(kind)
    assert len(ran) >= 20


def test_a_linear_of_several_matrices_runs_forward_and_back():
    for phase, shape in (
        ("forward", (16, 96, 32)),
        ("input_gradient", (16, 32, 96)),
        ("weight_gradient", (32, 96, 16)),
    ):
        case = gemm_case(CPU, shape, phase, (64, 16, 16))
        out = case.make()()
        if phase == "input_gradient":
            assert out.shape == (16, 32)
        assert case.point.features["flops"] == 2.0 * 16 * 96 * 32


def test_points_have_the_counted_sizes():
    # 100 tokens of 64: forward reads and writes 100 x 64 x 4 bytes, backward three times as much
    points = operator_points(
        Norm(name="n", width=64), Shard(1.0, 100.0, 100.0), Style(compute_bytes=4.0), "fp32", 2
    )
    assert points[Phase.FORWARD].features["bytes"] == 2 * 100 * 64 * 4
    assert points[Phase.INPUT_GRADIENT].features["bytes"] == 3 * 100 * 64 * 4
    assert {point.processes for point in points.values()} == {2}
    assert product_features(2, 3, 4, 5, 2.0)["bytes"] == (2 * 4 + 4 * 3 + 2 * 3) * 2.0 * 5


@pytest.mark.parametrize(
    ("driver", "memory_gib", "name"),
    [
        ("NVIDIA H200", 139.8, "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", 79.2, "h100-sxm-80gb"),
        ("NVIDIA A100-SXM4-80GB", 79.2, "a100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", 39.0, "nvidia-h100-80gb-hbm3"),  # half of one, as a partition
        ("NVIDIA RTX 6000 Ada Generation", 47.5, "nvidia-rtx-6000-ada-generation"),
    ],
)
def test_a_driver_and_its_memory_name_the_device(driver: str, memory_gib: float, name: str):
    assert catalog_name(driver, memory_gib * 1024**3) == name


def test_the_machine_is_described():
    found = machine(CPU.device)
    assert found.cores >= 1
    assert found.driver_name == found.processor
    assert versions()["torch"] == torch.__version__
    assert {point.name for point in memory_facts(CPU.device)} >= {"context_bytes"}


def test_one_thread_is_timed_by_the_processor_several_by_the_wall():
    assert isinstance(clock_of(CPU.device, 1), ProcessorClock)
    assert isinstance(clock_of(CPU.device, 2), WallClock)
    samples = WallClock().samples(lambda: None, 10, 3)
    assert len(samples) == 3
    assert group_sizes(8) == (2, 4, 8)
    assert group_sizes(6) == (2, 4, 6)
    assert group_sizes(1) == ()
