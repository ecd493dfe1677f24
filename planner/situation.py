"""A request resolved: specs instead of names, defaults filled, engine chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from cost_models.communication import Network, network_of
from cost_models.engines import Engine, Facts, find_engine
from cost_models.errors import BadInput
from cost_models.fine_tuning import fine_tuned
from cost_models.profiles import cluster_from_spec, load_preset, model_config
from cost_models.readers import Reader, read_model
from cost_models.roofline import (
    Efficiency,
    Generation,
    Uncertainty,
    efficiency_of,
    load_generation,
    load_uncertainty,
)
from cost_models.rows import step_model_flops
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.counts import ParameterCounts, count_parameters
from cost_models.specs.job import Job, JobRequest, resolve_job
from cost_models.specs.model import ModelSpec
from planner.request import (
    CatalogModel,
    ClusterInput,
    HuggingFaceModel,
    ModelInput,
    PresetCluster,
)


@dataclass(frozen=True)
class Situation:
    """One model on one cluster for one job under one engine: what every prediction is a function of.

    What all its predictions share is counted and read once, when first asked for.
    """

    model: ModelSpec
    cluster: ClusterSpec
    job: Job
    engine: Engine
    job_request: JobRequest

    @cached_property
    def facts(self) -> Facts:
        """The numbers that legality depends on."""
        return Facts(self.model, self.cluster, self.job)

    @cached_property
    def generation(self) -> Generation:
        """The software generation that prices the step."""
        engine = self.engine
        return load_generation(engine.options.generation, engine.name, engine.version)

    @cached_property
    def efficiency(self) -> Efficiency:
        """Efficiency curves of the cluster's device under the software generation."""
        return efficiency_of(self.cluster.device, self.generation)

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """How well fitted runs know the steps of models, devices and software."""
        return load_uncertainty()

    @cached_property
    def network(self) -> Network:
        """The cluster's links as numbers, as the engine uses them."""
        return network_of(self.cluster, in_switch=self.engine.options.nvlink_sharp)

    @cached_property
    def counts(self) -> ParameterCounts:
        """Parameters of the model."""
        return count_parameters(self.model)

    @cached_property
    def model_flops(self) -> float:
        """Model FLOPs of one optimizer step."""
        return step_model_flops(self.model, self.job)


def resolve(model: ModelInput, cluster: ClusterInput, job: JobRequest, reader: Reader = "auto") -> Situation:
    """Resolve the three inputs; raises BadInput naming what is wrong. `reader` says who may read a config."""
    return situate(resolve_model(model, reader), resolve_cluster(cluster), job)


def situate(model: ModelSpec, cluster: ClusterSpec, job: JobRequest) -> Situation:
    """Check a job against its model, cluster and engine."""
    resolved = resolve_job(job, model)
    model = fine_tuned(model, resolved.trainable)
    engine = find_engine(resolved)
    engine.check_job(model, cluster, resolved)
    return Situation(engine.staged(model), cluster, resolved, engine, job)


def changed(situation: Situation, changes: Mapping[str, Any]) -> Situation:
    """The same question with other devices, global_batch, seq_len or reserve_bytes, precision, optimizer or options;
    raises BadInput like `situate`."""
    cluster, job = situation.cluster, situation.job_request
    devices = int(changes.get("devices", cluster.num_devices))
    if devices != cluster.num_devices:
        cluster = cluster.with_devices(devices)
    values = {key: int(changes[key]) for key in ("global_batch", "seq_len") if key in changes}
    options = dict(job.options) | changes.get("options", {})
    if "reserve_bytes" in changes:
        options["job.reserve_bytes"] = float(changes["reserve_bytes"])
    own = {key: changes[key] for key in ("precision", "optimizer") if key in changes}
    try:
        changed_job = JobRequest.model_validate({**job.model_dump(), **values, **own, "options": options})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise BadInput(
            f"{key}={changes.get(key)!s:.60}: {error.errors()[0]['msg']}", pointer=f"/job/{key}"
        ) from None
    return situate(situation.model, cluster, changed_job)


def resolve_model(model: ModelInput, reader: Reader = "auto") -> ModelSpec:
    """A ModelSpec from a tagged model."""
    if isinstance(model, CatalogModel):
        return read_model(model_config(model.name), name=model.name)
    if isinstance(model, HuggingFaceModel):
        return read_model(model.config, reader=reader)
    return read_model(model.spec)


def resolve_cluster(cluster: ClusterInput) -> ClusterSpec:
    """A ClusterSpec from a tagged cluster."""
    if isinstance(cluster, PresetCluster):
        return load_preset(cluster.name, cluster.devices)
    return cluster_from_spec(cluster.spec)
