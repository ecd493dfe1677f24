"""The planner as a library: `from planner import plan, evaluate, check`.

A model is a catalog name, a path to a `config.json` or a layers file, such a file's contents as a mapping, or a
ModelSpec; a cluster a preset (`dgx-h100:64`), a path, a mapping or a ClusterSpec; a strategy what `--strategy` takes, a
mapping, or a StrategyRequest. The job's keys are those of the command line.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, Unpack

from cost_models.profiles import cluster_from_spec, load_cluster
from cost_models.readers import read_model
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import JobRequest
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import StrategyRequest, parse_strategy, strategy_from_mapping
from planner import checking, evaluation
from planner.answers import PlanResult, Prediction, Progress
from planner.checking import CheckReport, Limits
from planner.cli.question import load_model_input, validated
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import Situation, situate

Model = str | os.PathLike[str] | Mapping[str, Any] | ModelSpec
Cluster = str | os.PathLike[str] | Mapping[str, Any] | ClusterSpec
Strategy = str | Mapping[str, Any] | StrategyRequest


class JobKeys(TypedDict, total=False):
    """A job: sequences (or samples) of a step, tokens of a sequence, precision, engine, optimizer, typed options."""

    global_batch: int
    seq_len: int | None
    precision: str
    engine: str
    optimizer: str
    options: Mapping[str, bool | int | float | str]


class SearchKeys(JobKeys, total=False):
    """A job, and how to search: see planner.request.SearchRequest."""

    objective: str
    pins: Mapping[str, bool | int | str]
    bans: tuple[str, ...]
    vary: Mapping[str, str]
    top_k: int
    max_seconds: float
    gap: float
    seed: int
    allow_at_risk: bool
    prefer_simple: bool


def plan(
    model: Model,
    cluster: Cluster,
    on_progress: Callable[[Progress], None] | None = None,
    **keys: Unpack[SearchKeys],
) -> PlanResult:
    """The best plan with its certificate, alternatives, or why nothing fits; raises BadInput naming what is wrong."""
    job = {key: value for key, value in keys.items() if key in JobKeys.__annotations__}
    search = {key: value for key, value in keys.items() if key not in JobKeys.__annotations__}
    situation = situation_of(model, cluster, job)
    return make_plan(situation, validated(SearchRequest, search, "search"), on_progress)


def evaluate(model: Model, cluster: Cluster, strategy: Strategy, **job: Unpack[JobKeys]) -> Prediction:
    """Step time, memory and verdict of one strategy.

    Raises IllegalStrategy where the engine would refuse it, BadInput for anything else that is wrong.
    """
    return evaluation.evaluate(situation_of(model, cluster, job), strategy_of(strategy))


def check(
    model: Model,
    cluster: Cluster,
    strategy: Strategy,
    limits: Limits | None = None,
    baseline: Mapping[str, Any] | None = None,
    **job: Unpack[JobKeys],
) -> CheckReport:
    """Hold a strategy against limits and a baseline; `passed` says yes or no, `failures` why not."""
    situation = situation_of(model, cluster, job)
    return checking.check(situation, strategy_of(strategy), limits or Limits(), baseline)


def situation_of(model: Model, cluster: Cluster, job: Mapping[str, object]) -> Situation:
    """Model, cluster and job, read and resolved."""
    return situate(_model(model), _cluster(cluster), validated(JobRequest, job, "job"))


def strategy_of(strategy: Strategy) -> StrategyRequest:
    """A strategy from any of its forms."""
    if isinstance(strategy, StrategyRequest):
        return strategy
    return parse_strategy(strategy) if isinstance(strategy, str) else strategy_from_mapping(strategy)


def _model(model: Model) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return model
    if isinstance(model, Mapping):
        return read_model(dict(model))
    return load_model_input(model if isinstance(model, str) else str(Path(model)))


def _cluster(cluster: Cluster) -> ClusterSpec:
    if isinstance(cluster, ClusterSpec):
        return cluster
    if isinstance(cluster, Mapping):
        return cluster_from_spec(cluster)
    return load_cluster(cluster if isinstance(cluster, str) else str(Path(cluster)))
