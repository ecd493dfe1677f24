"""Dtypes of a precision, and what is refused by name."""

import pytest
import torch

from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from planner.executor.offload import HostCopies, offloads_optimizer, sharding_policy
from planner.executor.precision import compute_dtype


def test_dtypes() -> None:
    assert compute_dtype(Precision.BF16) is torch.bfloat16
    assert compute_dtype(Precision.TF32) is compute_dtype(Precision.FP32) is torch.float32


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.FP8, Precision.MXFP8, Precision.NVFP4])
def test_others_are_refused(precision: Precision) -> None:
    with pytest.raises(
        BadInput, match=f"precision {precision.value} is not run by this executor; use one of fp32"
    ):
        compute_dtype(precision)


def test_offload_on_a_cpu_is_none() -> None:
    assert not offloads_optimizer("optimizer", "cpu")
    assert offloads_optimizer("optimizer:1.0", "cuda")
    assert not offloads_optimizer("parameters", "cuda")
    assert not getattr(sharding_policy("parameters", "cpu"), "pin_memory", True)


def test_a_share_is_refused() -> None:
    with pytest.raises(BadInput, match=r"keeps 50% of the optimizer on the host.*use offload=optimizer"):
        offloads_optimizer("optimizer:0.5", "cpu")


def test_host_copies_are_fp32_and_apart() -> None:
    resident = torch.ones(3, dtype=torch.bfloat16)
    host = HostCopies([resident])
    assert host.masters[0].dtype is torch.float32
    host.load_gradients([torch.full((3,), 2.0)])
    host.masters[0].add_(host.gradients[0])
    assert host.masters[0].tolist() == [3.0] * 3
    assert resident.tolist() == [1.0] * 3
