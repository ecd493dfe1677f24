"""States in the host's memory: masters and moments of an optimizer, or everything that is sharded (CPUOffloadPolicy).

On a CPU device the host's memory is the device's, so offload changes nothing there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
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
        self.masters = [_host(tensor.detach().float()) for tensor in resident]
        self.gradients = [_host(torch.zeros_like(master)) for master in self.masters]

    def load_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Bring the device's gradients to the host, and wait for them: the host computes next."""
        for target, gradient in zip(self.gradients, gradients, strict=True):
            target.copy_(gradient, non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()


def _host(tensor: Tensor) -> Tensor:
    """A copy in the host's memory, pinned where there is a GPU to copy to."""
    tensor = tensor.to("cpu", copy=True)
    return tensor.pin_memory() if torch.cuda.is_available() else tensor
