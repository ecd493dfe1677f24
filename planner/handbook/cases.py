"""The few questions that the pages on parallelism ask, and their predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answers import Prediction, StageMemory
from planner.evaluation import evaluate
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a cluster under an engine; strategies vary in it."""

    model: str
    cluster: str
    devices: int
    engine: str
    global_batch: int
    seq_len: int | None = None
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    def situation(self) -> Situation:
        """The question, resolved."""
        job = JobRequest(
            seq_len=self.seq_len,
            global_batch=self.global_batch,
            engine=self.engine,
            options=dict(self.options),
        )
        return resolve(
            CatalogModel(name=self.model), PresetCluster(name=self.cluster, devices=self.devices), job
        )

    def predict(self, strategy: str = "") -> Prediction:
        """The prediction of one strategy."""
        return evaluate(self.situation(), parse_strategy(strategy))


@cache
def resnet(devices: int, engine: str) -> Case:
    """ResNet-50, 64 images a GPU."""
    return Case("resnet-50", "dgx-a100", devices, engine, 64 * devices)


ZERO = Case("llama-3.2-1b", "dgx-h100", 8, "deepspeed", 64, 4096)
PIPELINE = Case("llama-3.1-8b", "dgx-h100", 4, "torch", 16, 4096)
TENSOR = Case("llama-3.1-8b", "dgx-h100", 16, "megatron", 64, 4096)
CONTEXT = Case("llama-3.1-8b", "dgx-h100", 16, "megatron", 2, 131072)
EXPERT = Case("mixtral-8x7b", "dgx-h100", 64, "megatron", 256, 4096)
HYBRID = Case("llama-3.1-70b", "dgx-h100", 64, "megatron", 512, 8192)
EIGHT = Case("llama-3.1-8b", "dgx-h100", 8, "megatron", 64, 4096)
EIGHT_SHARDED = replace(EIGHT, engine="fsdp2")
EIGHT_EXPERTS = replace(EIGHT, model="mixtral-8x7b")
HYBRIDS = {
    "ZeRO-1 alone": "zero=1,recompute=full",
    "tensor in the node": "tp=8,recompute=full",
    "tensor and pipeline": "tp=8,pp=4",
    "less tensor, more pipeline": "tp=4,pp=8,vpp=2",
    "with context parallelism": "tp=2,cp=4,pp=8,vpp=2",
}
"""Layouts of HYBRID that an expert may try by hand."""


def fullest(prediction: Prediction) -> StageMemory:
    """The stage with the most memory."""
    return max(prediction.memory.stages, key=lambda stage: stage.allocated_bytes)
