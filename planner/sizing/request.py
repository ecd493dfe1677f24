"""What `planner size` asks: a model, a job and a run, on one or several kinds of cluster."""

from typing import Annotated, Final

from pydantic import Field, StrictInt

from cost_models.errors import BadInput
from cost_models.specs.base import Frozen
from cost_models.specs.cluster import MAX_DEVICES, ClusterSpec
from cost_models.specs.job import JobRequest
from planner.objectives.counts import doubled_counts
from planner.request import ClusterInput, ModelInput, Name, SearchRequest
from planner.situation import Situation, changed

USUAL_MFU: Final = 0.4
"""Share of peak that decides only how far the table reaches; nothing in it depends on this."""

USUAL_DEVICES: Final = 1024
LEAST_NODES: Final = 8
MOST_DEVICES: Final = 131_072
"""How far the table reaches without a deadline, at least with one, and at most."""

Counts = Annotated[tuple[Annotated[StrictInt, Field(ge=1, le=MAX_DEVICES)], ...], Field(max_length=64)]


class SizeCluster(Frozen):
    """A kind of cluster with the name that its rows carry; `is_open` where the number of devices is the question."""

    name: Name
    cluster: ClusterInput
    is_open: bool = True


class SizeRequest(Frozen):
    """The question; `search.run` holds tokens, deadline, price and failures. Empty `devices`: 1, 2, 4, ... nodes."""

    model: ModelInput
    clusters: Annotated[tuple[SizeCluster, ...], Field(min_length=1, max_length=64)]
    job: JobRequest
    search: SearchRequest = SearchRequest(top_k=0, explain=False)
    devices: Counts = ()


def most_devices(situation: Situation, request: SizeRequest) -> int:
    """How many devices the table of an open cluster reaches: twice what the deadline takes at a usual share of peak."""
    run = request.search.run
    node = situation.cluster.groups[0].devices_per_node
    if run.deadline_s is None or run.tokens is None:
        return max(USUAL_DEVICES // node, 1) * node
    job = situation.job
    flops = situation.model_flops * run.tokens / (job.tokens_per_step or job.global_batch)
    rate = situation.cluster.device.peak(situation.job.precision.value) * USUAL_MFU
    nodes = max(LEAST_NODES, 2.0 * flops / rate / run.deadline_s / node)
    power = 1 << (int(nodes) - 1).bit_length()
    return max(min(power * node, MOST_DEVICES // node * node), node)


def counts_of(situation: Situation, most: int, request: SizeRequest) -> tuple[int, ...]:
    """Numbers of devices of one cluster's rows; raises BadInput for counts that it cannot have."""
    cluster = situation.cluster
    if request.devices:
        for devices in request.devices:
            _check_count(cluster, devices)
        return tuple(sorted(set(request.devices)))
    if most == cluster.num_devices:
        return doubled_counts(cluster)
    return doubled_counts(changed(situation, {"devices": most}).cluster)


def _check_count(cluster: ClusterSpec, devices: int) -> None:
    if devices != cluster.num_devices and len(cluster.groups) > 1:
        raise BadInput(
            f"{cluster.name} has {len(cluster.groups)} device groups, so {devices} devices are ambiguous; "
            "leave --devices out, or give a cluster of one group"
        )
