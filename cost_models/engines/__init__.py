"""Training frameworks: what each does with memory, precision, overlap, schedule and legality."""

from cost_models.engines.base import Engine, RowInstants, StateBytes, SyncPlan, option_values
from cost_models.engines.complete import complete
from cost_models.engines.deepspeed import DeepSpeed
from cost_models.engines.fsdp1 import Fsdp1
from cost_models.engines.group_bytes import local_elements
from cost_models.engines.megatron import Megatron
from cost_models.engines.overlap_policy import OverlapPolicy
from cost_models.engines.parameter_server import ParameterServer
from cost_models.engines.rules import Facts
from cost_models.engines.sharded import Ddp, Fsdp2, Torch
from cost_models.engines.space import Space
from cost_models.engines.stage_rules import even_stages
from cost_models.engines.torchtitan import Torchtitan
from cost_models.errors import InvalidJob
from cost_models.specs.job import Job
from cost_models.suggest import did_you_mean

ENGINES: dict[str, type[Engine]] = {
    kind.name: kind for kind in (Megatron, Torch, Torchtitan, Fsdp2, Fsdp1, DeepSpeed, Ddp, ParameterServer)
}


def find_engine(job: Job) -> Engine:
    """The engine a job names, with its options; raises InvalidJob naming the known ones."""
    if job.engine not in ENGINES:
        known = tuple(ENGINES)
        raise InvalidJob(
            f"unknown engine {job.engine:.60}; {did_you_mean(job.engine, known)}known: {', '.join(known)}",
            pointer="/job/engine",
            allowed=known,
        )
    return ENGINES[job.engine](job)


__all__ = [
    "ENGINES",
    "Engine",
    "Facts",
    "OverlapPolicy",
    "RowInstants",
    "Space",
    "StateBytes",
    "SyncPlan",
    "complete",
    "even_stages",
    "find_engine",
    "local_elements",
    "option_values",
]
