"""How routed experts divide the ranks of a stage: expert tensor parallel inside expert parallel inside replicas.

The tp x cp x dp ranks of a stage are numbered with tp innermost and divided anew as etp, ep and expert data parallel,
from the inside (Megatron-LM's expert rank generator, megatron/core/parallel_state.py; `MeshBatch.span` prices this).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cost_models.specs.strategy import Strategy

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

EXPERT_DIMS: Final = ("pp", "edp", "ep", "etp")


def experts_stand_apart(strategy: Strategy) -> bool:
    """Whether experts are held by other ranks than the dense parameters of a stage are."""
    return (strategy.tp, strategy.ep, strategy.etp, strategy.dp_replicate) != (1, 1, 1, 1)


def expert_sizes(strategy: Strategy) -> tuple[int, int, int, int]:
    """Sizes of the expert mesh's dimensions."""
    ranks = strategy.tp * strategy.cp * strategy.dp
    return strategy.pp, ranks // (strategy.ep * strategy.etp), strategy.ep, strategy.etp


@dataclass(frozen=True, slots=True)
class ExpertMeshes:
    """The expert mesh of a running strategy, ("pp", "edp", "ep", "etp"), and its views."""

    root: "DeviceMesh"

    @property
    def model(self) -> "DeviceMesh":
        """The two dimensions over which an expert parameter is divided: experts over ep, features over etp."""
        return self.root["ep", "etp"]

    @property
    def data(self) -> "DeviceMesh":
        """Ranks that hold the same experts, one dimension."""
        return self.root["edp"]

    @property
    def data_group(self) -> "ProcessGroup":
        """Ranks whose expert gradients are summed."""
        return self.data.get_group()

    @property
    def ep_group(self) -> "ProcessGroup":
        """Ranks that exchange tokens."""
        return self.root["ep"].get_group()

    @property
    def etp_group(self) -> "ProcessGroup":
        """Ranks that share each expert."""
        return self.root["etp"].get_group()


def build_expert_meshes(strategy: Strategy, device_type: str, ranks: Sequence[Sequence[int]]) -> ExpertMeshes:
    """The expert meshes of this process; `ranks` holds every stage's ranks in their order, tp innermost; collective."""
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    table = torch.tensor(ranks).view(expert_sizes(strategy))
    return ExpertMeshes(DeviceMesh(device_type, table, mesh_dim_names=EXPERT_DIMS))
