"""Where every rank stands: the device mesh of a strategy, ("pp", "replicate", "shard", "cp", "tp").

Ranks are numbered along `strategy.order` from the inside out, so that an inner axis lies on neighbouring devices; data
parallel ranks are replicas (outer) of shards (inner). Expert axes re-divide these ranks (planner.executor.expert_mesh).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from cost_models.errors import BadInput
from cost_models.specs.strategy import Strategy
from planner.executor.expert_mesh import ExpertMeshes, build_expert_meshes, experts_stand_apart

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

MESH_DIMS: Final = ("pp", "replicate", "shard", "cp", "tp")
DENSE_AXES: Final = ("tp", "cp", "dp", "pp")


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Position of one rank along every dimension of the mesh."""

    pp: int
    replicate: int
    shard: int
    cp: int
    tp: int


def coordinates(strategy: Strategy, rank: int) -> Coordinates:
    """Coordinates of a rank; raises BadInput for a rank outside the strategy's world."""
    if not 0 <= rank < strategy.world_size:
        raise BadInput(f"rank {rank} is outside a world of {strategy.world_size}; start one process per rank")
    at = {}
    for axis, degree in _inner_first(strategy):
        rank, at[axis] = divmod(rank, degree)
    replicate, shard = divmod(at["dp"], strategy.dp_shard)
    return Coordinates(pp=at["pp"], replicate=replicate, shard=shard, cp=at["cp"], tp=at["tp"])


def rank_of(strategy: Strategy, at: Coordinates) -> int:
    """The rank that stands at the coordinates: the inverse of `coordinates`."""
    place = {"pp": at.pp, "dp": at.replicate * strategy.dp_shard + at.shard, "cp": at.cp, "tp": at.tp}
    rank, stride = 0, 1
    for axis, degree in _inner_first(strategy):
        rank += place[axis] * stride
        stride *= degree
    return rank


def mesh_ranks(strategy: Strategy) -> Iterator[int]:
    """Ranks of the mesh in row-major order of its dimensions."""
    for pp, replicate, shard, cp, tp in product(*(range(size) for size in mesh_sizes(strategy))):
        yield rank_of(strategy, Coordinates(pp, replicate, shard, cp, tp))


def mesh_sizes(strategy: Strategy) -> tuple[int, int, int, int, int]:
    """Sizes of the mesh's dimensions, those of one rank kept."""
    return strategy.pp, strategy.dp_replicate, strategy.dp_shard, strategy.cp, strategy.tp


def _inner_first(strategy: Strategy) -> list[tuple[str, int]]:
    """Dense axes and their degrees, innermost first."""
    return [(axis, getattr(strategy, axis)) for axis in strategy.order if axis in DENSE_AXES]


@dataclass(frozen=True, slots=True)
class Meshes:
    """The device mesh of a running strategy and the views of it that the executor uses."""

    root: "DeviceMesh"
    """All five dimensions."""
    data: "DeviceMesh"
    """One dimension over every rank that holds the same parameters: replicas, shards and context parallel."""
    shard: "DeviceMesh"
    """One dimension over the ranks that share sharded states: shards and context parallel."""
    at: Coordinates
    rank: int
    device_type: str
    experts: ExpertMeshes | None = None
    """How routed experts divide the same ranks; None where they are held like everything else."""

    @property
    def tp(self) -> "DeviceMesh":
        """Tensor parallel mesh, one dimension."""
        return self.root["tp"]

    @property
    def pp(self) -> "DeviceMesh":
        """Pipeline mesh, one dimension."""
        return self.root["pp"]

    @property
    def fsdp(self) -> "DeviceMesh":
        """What FSDP shards over: the shard mesh, or replicas x shards where there are replicas."""
        if self.root["replicate"].size() == 1:
            return self.shard
        if self.root["cp"].size() == 1:
            return self.root["replicate", "shard"]
        from torch.distributed.device_mesh import DeviceMesh

        # [Private torch API] No public call joins a flattened dimension with another (what FSDP2 itself does).
        return DeviceMesh._concatenate([self.root["replicate"], self.shard])

    @property
    def pp_group(self) -> "ProcessGroup":
        """Ranks of one pipeline."""
        return self.pp.get_group()

    @property
    def tp_group(self) -> "ProcessGroup":
        """Ranks that share each layer."""
        return self.tp.get_group()

    @property
    def data_group(self) -> "ProcessGroup":
        """Ranks whose gradients are summed."""
        return self.data.get_group()

    @property
    def data_rank(self) -> int:
        """Place of this rank among those whose gradients are summed."""
        return self.data.get_local_rank()

    @property
    def data_size(self) -> int:
        """Number of ranks whose gradients are summed."""
        return self.data.size()

    @property
    def positions(self) -> "DeviceMesh":
        """Ranks that hold parts of the same sequences, context parallel x tensor parallel, one dimension."""
        wide = [name for name in ("cp", "tp") if self.root[name].size() > 1]
        return (
            self.root[wide[0] if wide else "tp"]
            if len(wide) < 2
            else self.root["cp", "tp"]._flatten("positions")
        )

    def model_mesh(self, *, expert: bool) -> "DeviceMesh":
        """The mesh over which a parameter is divided: tensor parallel, or (ep, etp) for an expert that stands apart."""
        return self.experts.model if expert and self.experts else self.tp

    def data_group_of(self, *, expert: bool) -> "ProcessGroup":
        """Ranks that hold the same part of a parameter, whose gradients are summed."""
        return self.experts.data_group if expert and self.experts else self.data_group

    def partial_group_of(self, *, expert: bool) -> "ProcessGroup":
        """Ranks over which a partial gradient is summed."""
        return self.experts.etp_group if expert and self.experts else self.tp_group


def build_meshes(strategy: Strategy, device_type: str, *, routed: bool = False) -> Meshes:
    """The meshes of this process; collective over the default process group, whose size must be the strategy's.

    `routed`: the model has routed experts. Raises BadInput where the group has another size.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    world, rank = dist.get_world_size(), dist.get_rank()
    if world != strategy.world_size:
        raise BadInput(
            f"{world} processes run a strategy of {strategy.world_size} ranks; start {strategy.world_size} processes"
        )
    ranks = torch.tensor(list(mesh_ranks(strategy))).view(mesh_sizes(strategy))
    root = DeviceMesh(device_type, ranks, mesh_dim_names=MESH_DIMS)
    shard = root["shard", "cp"]._flatten("shard_cp") if strategy.cp > 1 else root["shard"]
    at = coordinates(strategy, rank)
    experts = None
    if routed and experts_stand_apart(strategy):
        table = [[rank_of(strategy, place) for place in _of_stage(strategy, pp)] for pp in range(strategy.pp)]
        experts = build_expert_meshes(strategy, device_type, table)
    return Meshes(root, _data_mesh(strategy, root), shard, at, rank, device_type, experts)


def _of_stage(strategy: Strategy, pp: int) -> Iterator[Coordinates]:
    """Places of one pipeline rank in the order that experts re-divide: tp innermost, then cp, then data."""
    sizes = (strategy.dp_replicate, strategy.dp_shard, strategy.cp, strategy.tp)
    for replicate, shard, cp, tp in product(*map(range, sizes)):
        yield Coordinates(pp, replicate, shard, cp, tp)


def _data_mesh(strategy: Strategy, root: "DeviceMesh") -> "DeviceMesh":
    """The flattened data dimension; a dimension as it stands where the others have one rank."""
    wide = [name for name in ("replicate", "shard", "cp") if root[name].size() > 1]
    return root[wide[0] if wide else "shard"] if len(wide) < 2 else root[tuple(wide)]._flatten("data")
