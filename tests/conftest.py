"""Settings shared by all tests."""

import json
import os
from collections.abc import Callable
from functools import lru_cache

import pytest
from hypothesis import settings

from cost_models.engines import Facts, complete
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve

# The same examples on every run, so that a red test is red for everybody; no deadline, because a
# busy machine is not a bug.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")

# What somebody measured on this machine moves no test; tests that want a profile name its folder.
os.environ["PARALLELISM_PLANNER_MEASURED"] = ""


@pytest.fixture(scope="session")
def make_situation() -> Callable[..., Situation]:
    """A factory: catalog model, cluster preset, devices, then the job's fields."""

    @lru_cache(maxsize=64)
    def make(model: str, cluster: str, devices: int, job: str) -> Situation:
        inputs = (CatalogModel(name=model), PresetCluster(name=cluster, devices=devices))
        return resolve(*inputs, JobRequest.model_validate_json(job))

    return lambda model, cluster, devices, **job: make(model, cluster, devices, json.dumps(job))


@pytest.fixture(scope="session")
def make_mesh() -> Callable[[Situation, str], MeshBatch]:
    """A factory: a strategy text, completed by the situation's engine, as a batch of one mesh."""

    def make(of: Situation, text: str) -> MeshBatch:
        strategy = complete(of.engine, Facts(of.model, of.cluster, of.job), parse_strategy(text))
        return batch_of([strategy], mesh_key(strategy))

    return make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the figures that benchmarks record (`record_property`)."""
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            shown = f"{value:.3g}" if isinstance(value, float) else value
            terminalreporter.write_line(f"{report.nodeid}: {name} {shown}")
