"""What the loop runs: layouts of models, and the question that each of them answers on the device at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cost_models.profiles.catalog import HOST_DEVICE
from cost_models.readers import read_model
from cost_models.specs.job import JobRequest
from planner.request import PresetCluster, SpecCluster
from planner.situation import Situation, resolve_cluster, situate


@dataclass(frozen=True, slots=True)
class LoopModel:
    """A model's config; `small` is what a model that any machine runs in a moment has instead."""

    name: str
    config: Mapping[str, object]
    seq_len: int
    small: Mapping[str, object]
    small_seq_len: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: what stands in the table, and the class whose errors are counted together."""

    strategy: str
    processes: int
    engine: str
    global_batch: int
    group: str
    model: LoopModel

    @property
    def name(self) -> str:
        """Kind, engine and strategy."""
        return f"{self.group} {self.engine} {self.strategy}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the loop runs: one accelerator, by its cluster, or the host's processor; `small` models to try it."""

    accelerator: Mapping[str, object] | None = None
    small: bool = False

    @property
    def precision(self) -> Literal["fp32", "bf16"]:
        """Of products."""
        return "fp32" if self.accelerator is None else "bf16"

    def situation(self, layout: Layout) -> Situation:
        """The question that a layout answers: on as many processes of the host, or on one accelerator."""
        model = layout.model
        config = {**model.config, **(model.small if self.small else {})}
        job = {
            "seq_len": model.small_seq_len if self.small else model.seq_len,
            "global_batch": layout.global_batch,
            "precision": self.precision,
            "engine": layout.engine,
        }
        cluster = resolve_cluster(self._cluster(layout.processes))
        return situate(read_model(config, name=model.name), cluster, JobRequest.model_validate(job))

    def _cluster(self, processes: int) -> PresetCluster | SpecCluster:
        if self.accelerator is None:
            return PresetCluster(name=HOST_DEVICE, devices=processes)
        return SpecCluster(spec=dict(self.accelerator))


def sizes(layouts: Sequence[Layout], key: str) -> tuple[int, ...]:
    """The values of one key of layouts: what the profile measures the models' shapes at."""
    return tuple(sorted({_value(layout.strategy, key) for layout in layouts}))


def _value(strategy: str, key: str) -> int:
    found = dict(part.split("=", 1) for part in strategy.split(","))
    return int(found.get(key, "1"))
