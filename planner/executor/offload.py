"""States in the host's memory: masters and moments of an optimizer, or everything that is sharded (CPUOffloadPolicy).

On a CPU device the host's memory is the device's, so offload changes nothing there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

from cost_models.errors import BadInput
from cost_models.specs.offload import parse_offload


def offloads_optimizer(offload: str, device_type: str) -> bool:
    """Whether the optimizer's tensors rest on a host that is not the device; raises BadInput for a share of them."""
    kind = parse_offload(offload)
    if kind.kind == "optimizer" and kind.optimizer < 1.0:
        raise BadInput(
            f"offload={offload} keeps {kind.optimizer:.0%} of the optimizer on the host, and this executor moves "
            "all of it or nothing; use offload=optimizer",
            allowed=("none", "optimizer", "parameters"),
        )
    return kind.kind == "optimizer" and device_type != "cpu"


def sharding_policy(offload: str, device_type: str) -> OffloadPolicy:
    """FSDP's policy; pinned host memory exists only beside a GPU."""
    if not parse_offload(offload).parameters:
        return OffloadPolicy()
    return CPUOffloadPolicy(pin_memory=device_type == "cuda")


class HostCopies:
    """fp32 copies of device tensors on the host, which an optimizer updates there (Ren et al. 2021, section 4.1)."""

    def __init__(self, resident: Sequence[Tensor]) -> None:
        self.targets = [_host_parameter(tensor) for tensor in resident]

    def load_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Bring the device's gradients to the host, all copies at once."""
        for target, gradient in zip(self.targets, gradients, strict=True):
            assert target.grad is not None
            target.grad.copy_(gradient, non_blocking=True)
        torch.cuda.synchronize()

    def store(self, resident: Sequence[Tensor]) -> None:
        """Bring the updated values back to the device."""
        for target, tensor in zip(self.targets, resident, strict=True):
            tensor.copy_(target.detach(), non_blocking=True)


def _host_parameter(tensor: Tensor) -> nn.Parameter:
    pinned = tensor.device.type == "cuda"
    target = nn.Parameter(_pinned(tensor.detach().to("cpu", torch.float32), pinned))
    target.grad = _pinned(torch.zeros_like(target, requires_grad=False), pinned)
    return target


def _pinned(tensor: Tensor, pinned: bool) -> Tensor:
    return tensor.pin_memory() if pinned else tensor
