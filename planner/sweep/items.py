"""What a sweep asks: every combination of models, clusters and jobs, each a request of its own with a stable key."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Final

from pydantic import Field, StrictInt, StrictStr

from cost_models.errors import BadInput
from cost_models.profiles import profiles_sha256
from cost_models.specs.base import Frozen
from cost_models.specs.job import MAX_BATCH, MAX_SEQ_LEN, JobRequest, Optimizer, Precision, Scalar
from planner.request import ClusterInput, ModelInput, Name, PlanRequest, SearchRequest
from planner.version import planner_version

MAX_ITEMS: Final = 100_000

AXES: Final = (
    "models",
    "clusters",
    "seq_lens",
    "global_batches",
    "precisions",
    "engines",
    "optimizers",
    "options",
)

_Some = Field(min_length=1, max_length=1000)
_Length = Annotated[StrictInt, Field(ge=1, le=MAX_SEQ_LEN)]
_Batch = Annotated[StrictInt, Field(ge=1, le=MAX_BATCH)]
_Engine = Annotated[StrictStr, Field(min_length=1, max_length=64)]
_Options = Annotated[dict[StrictStr, Scalar], Field(max_length=64)]


class NamedModel(Frozen):
    """A model with the name that its rows carry."""

    name: Name
    model: ModelInput


class NamedCluster(Frozen):
    """A cluster with the name that its rows carry."""

    name: Name
    cluster: ClusterInput


class SweepRequest(Frozen):
    """The product of its lists; every combination is asked once, with the same search."""

    models: Annotated[tuple[NamedModel, ...], _Some]
    clusters: Annotated[tuple[NamedCluster, ...], _Some]
    global_batches: Annotated[tuple[_Batch, ...], _Some]
    seq_lens: Annotated[tuple[_Length | None, ...], _Some] = (None,)
    precisions: Annotated[tuple[Precision, ...], _Some] = (Precision.BF16,)
    engines: Annotated[tuple[_Engine, ...], _Some] = ("megatron",)
    optimizers: Annotated[tuple[Optimizer, ...], _Some] = (Optimizer.ADAMW,)
    options: Annotated[tuple[_Options, ...], _Some] = ({},)
    search: SearchRequest = SearchRequest(top_k=0, explain=False)

    @property
    def num_items(self) -> int:
        """Combinations."""
        return prod(len(getattr(self, axis)) for axis in AXES)


@dataclass(frozen=True, slots=True)
class SweepItem:
    """One combination: the key of its request under this version, the words of its row, the request."""

    key: str
    labels: Mapping[str, object]
    request: PlanRequest


def sweep_items(sweep: SweepRequest) -> Iterator[SweepItem]:
    """Every combination once, in the order of the lists; raises BadInput for more than a sweep may have."""
    if sweep.num_items > MAX_ITEMS:
        raise BadInput(
            f"the sweep has {sweep.num_items:,} combinations; split it into parts of at most {MAX_ITEMS:,}"
        )
    seen: set[str] = set()
    for values in product(*(getattr(sweep, axis) for axis in AXES)):
        item = _item(dict(zip(AXES, values, strict=True)), sweep.search)
        if item.key not in seen:
            seen.add(item.key)
            yield item


def _item(at: Mapping[str, object], search: SearchRequest) -> SweepItem:
    model, cluster = at["models"], at["clusters"]
    assert isinstance(model, NamedModel) and isinstance(cluster, NamedCluster)
    job = JobRequest.model_validate(
        {
            "seq_len": at["seq_lens"],
            "global_batch": at["global_batches"],
            "precision": at["precisions"],
            "engine": at["engines"],
            "optimizer": at["optimizers"],
            "options": at["options"],
        }
    )
    labels = {"model": model.name, "cluster": cluster.name} | job.model_dump(mode="json")
    request = PlanRequest(model=model.model, cluster=cluster.cluster, job=job, search=search)
    return SweepItem(item_key(request), labels, request)


def item_key(request: PlanRequest) -> str:
    """The same for the same question under the same planner and the same profiles, another for anything else."""
    asked = request.model_dump(mode="json", exclude={"name", "tags"})
    stamp = {"request": asked, "planner": planner_version(), "profiles": profiles_sha256()}
    return hashlib.sha256(json.dumps(stamp, sort_keys=True).encode()).hexdigest()[:32]
