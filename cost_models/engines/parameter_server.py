"""Classic data parallel through a parameter server: one rank holds the aggregate and the optimizer.

Every worker sends its whole gradient to the server once a step and receives the whole parameters back (Li et al. 2014,
"Scaling Distributed Machine Learning with the Parameter Server"). The server's link carries n - 1 times what a ring
all-reduce sends over any link, which is why it was given up: it is here to be compared with. `engine.servers` ranks
share the load.
"""

from typing import ClassVar, cast

import numpy as np

from cost_models.engines.base import StateBytes, SyncPlan
from cost_models.engines.options import EngineOptions, ParameterServerOptions
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.rules import Rule, fixed, only
from cost_models.engines.space import Space
from cost_models.engines.torch_family import TorchFamily
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec


class ParameterServer(TorchFamily):
    """The first ranks work, aggregate and step; the others work. Memory is a server's, which holds most."""

    name = "parameter_server"
    versions = ("2.13",)
    can_step_early: ClassVar[bool] = False
    options_type: ClassVar[type[EngineOptions]] = ParameterServerOptions
    default_zero = 0

    @property
    def servers(self) -> int:
        """Ranks that serve."""
        return cast(ParameterServerOptions, self.options).servers

    def space(self, model: ModelSpec, job: Job) -> Space:
        """Data parallel only."""
        return Space(
            (0,),
            ("1f1b",),
            self.recompute_bases(model),
            pipeline=False,
            tensor=False,
            context=False,
            expert=False,
        )

    def state_bytes(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> StateBytes:
        """States of a server: what ddp keeps with its share of the moments, and its share of one worker's gradient on
        its way into the aggregate. Workers keep no optimizer states: they hold `optimizer` bytes less.
        """
        stored, gradient = self._parameter_bytes(), self._gradient_bytes()
        moments = self._moment_bytes(group, job) / self.servers
        compute = job.precision.activation_bytes
        cast_copy = compute if compute < stored else 0.0
        full = np.ones(meshes.size)
        arriving = np.where(meshes.dp > 1, gradient / self.servers, 0.0)
        traffic = ((2.0 * stored + gradient) / self.servers + 2.0 * moments) * full
        transient = np.maximum(stored * full, arriving)
        return StateBytes((stored + cast_copy) * full, gradient * full, moments * full, transient, traffic)

    def sync_plan(self, group: ParameterGroup, meshes: MeshBatch, job: Job) -> SyncPlan:
        """Gradients to the servers, parameters back: what one server takes from every worker, and sends to it."""
        each = 0.5 * (self._gradient_bytes() + self._parameter_bytes()) / self.servers
        return SyncPlan(server=np.full(meshes.size, each))

    def overlap(self) -> OverlapPolicy:
        """Nothing hides: the server takes gradients after the last backward and sends parameters after its step."""
        return OverlapPolicy(
            hidden={
                "tp_gemm": 0.0,
                "tp_wgrad_gather": 0.0,
                "tp_wgrad": 0.0,
                "ep_dispatch": 0.0,
                "cp_ring": 0.0,
            },
            sync_overlap=0.0,
            sync_exposed_min=1.0,
            gather_overlap=0.0,
            gather_exposed_min=1.0,
            micro_overlap=0.0,
            micro_overlap_backward=0.0,
            send_shown=0.5,
        )

    def rules(self) -> tuple[Rule, ...]:
        """Every axis but data parallel is 1."""
        source = "Li et al. 2014, section 5: one group of servers"
        servers = fixed(
            "parameter_server_servers",
            source,
            lambda facts, meshes: meshes.dp < self.servers,
            f"engine.servers={self.servers} of {{dp}} ranks",
            ("engine.servers of at most dp",),
        )
        why = "does not exist under parameter_server: use the torch, fsdp2 or megatron engine"
        axes = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp_replicate")
        return (
            *super().rules(),
            servers,
            only("parameter_server_zero", "zero", (0,), "shards states, which a server keeps whole", source),
            *(only(f"parameter_server_{axis}", axis, (1,), why, source) for axis in axes),
        )
