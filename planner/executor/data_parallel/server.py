"""Engine parameter_server: the first data rank holds the aggregate and the optimizer, as before rings replaced it.

Every rank works; workers send their whole gradient to the server once a step and receive the whole parameters back,
message by message (Li et al. 2014), so the server's link is the hot spot that the cost model prices.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cost_models.specs.job import Precision
from planner.executor.data_parallel.autocast import Autocast
from planner.executor.data_parallel.base import DataParallelSettings
from planner.executor.data_parallel.buckets import FlatDataParallel
from planner.executor.data_parallel.flat import FlatBucket
from planner.executor.mesh import Meshes
from planner.executor.precision import compute_dtype

WHOLE_MODEL_BYTES = 2**62
"""Bucket size that leaves one message a step in each direction."""


class ParameterServer(FlatDataParallel):
    """fp32 parameters and gradients in one flat buffer each; only the server's optimizer has states."""

    def __init__(self, chunks: Sequence[nn.Module], meshes: Meshes, settings: DataParallelSettings) -> None:
        whole = replace(settings, precision=Precision.FP32, bucket_bytes=WHOLE_MODEL_BYTES, overlap=False)
        self._ranks = dist.get_process_group_ranks(meshes.data_group)
        self._is_server = meshes.data_rank == 0
        super().__init__(chunks, meshes, whole, shared=False)
        dtype = compute_dtype(settings.precision)
        self.modules = [Autocast.around(module, meshes.device_type, dtype) for module in self.modules]
        if not self._is_server:
            for group in self.optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # so that a worker's optimizer does nothing and keeps nothing

    @torch.no_grad()
    def step(self, max_norm: float | None) -> float:
        """The server clips and updates; parameters and the norm go to every worker."""
        if self._is_server:
            norm = torch.tensor(super().step(max_norm), device=self.meshes.device_type)
        else:
            norm = torch.zeros((), device=self.meshes.device_type)
            self.optimizer.step()
            self.schedule.step()
        for tensor in [norm, *(bucket.weights for bucket in self._buckets)]:
            self._hand_out(tensor)
        return norm.item()

    @torch.no_grad()
    def full_gradients(self) -> dict[str, Tensor]:
        """The aggregate, which the server hands out for the comparison."""
        for bucket in self._buckets:
            self._hand_out(bucket.gradients)
        return super().full_gradients()

    def _matrix_group(self, bucket: FlatBucket) -> None:
        """The server works alone."""

    @property
    def _has_states(self) -> bool:
        return self._is_server

    def _is_my_turn(self, bucket: FlatBucket, index: int) -> bool:
        return self._is_server

    def _reduce(self, bucket: FlatBucket) -> None:
        """Workers send, the server adds one worker's gradient after the other."""
        if not self._is_server:
            dist.send(bucket.gradients, self._ranks[0], group=self.meshes.data_group)
        elif len(self._ranks) > 1:
            arriving = torch.empty_like(bucket.gradients)
            for worker in self._ranks[1:]:
                dist.recv(arriving, worker, group=self.meshes.data_group)
                bucket.gradients += arriving

    def _hand_out(self, tensor: Tensor) -> None:
        """The server's tensor to every worker, one after the other."""
        if not self._is_server:
            dist.recv(tensor, self._ranks[0], group=self.meshes.data_group)
            return
        for worker in self._ranks[1:]:
            dist.send(tensor, worker, group=self.meshes.data_group)
