"""The plans that docs/torch_oracle.md compares."""

from dataclasses import dataclass

from cost_models.profiles import model_config
from cost_models.readers import read_model
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.executor.request import RunOptions, RunOrder, order_of
from planner.request import PresetCluster
from planner.situation import resolve_cluster, situate

SEQ_LEN = 8192
LLAMA_8B, LLAMA_70B = "llama-3-8b", "llama-3-70b"


@dataclass(frozen=True, slots=True)
class OracleCase:
    """A Llama, processes, a strategy under ZeRO 2 or 3, and sequences a step."""

    model: str
    devices: int
    strategy: str
    global_batch: int
    engine: str = "torch"
    modules: str = "fused"

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.model}, {self.devices} ranks, {self.strategy}, batch {self.global_batch}"

    def order(self) -> RunOrder:
        """The run, in bf16 with AdamW, of sequences of 8192 tokens."""
        model = read_model(dict(model_config(self.model)), name=self.model)
        cluster = resolve_cluster(PresetCluster(name="dgx-h100", devices=self.devices))
        job = {
            "seq_len": SEQ_LEN,
            "global_batch": self.global_batch,
            "precision": "bf16",
            "engine": self.engine,
            "options": {"engine.modules": self.modules},
        }
        situation = situate(model, cluster, JobRequest.model_validate(job))
        return order_of(situation, parse_strategy(self.strategy), RunOptions(steps=2))


def oracle_cases() -> tuple[OracleCase, ...]:
    """Both models on 8 and 64 ranks, with and without recompute and tensor parallelism."""
    found = []
    for model in (LLAMA_8B, LLAMA_70B):
        for devices in (8, 64):
            for recompute in ("none", "full", "selective:mlp"):
                plain = f"dp={devices},mbs=1,zero=3,recompute={recompute}"
                found.append(OracleCase(model, devices, plain, devices))
            tp = f"tp=8,dp={devices // 8},sp=true,mbs=1,zero=3"
            found += [
                OracleCase(model, devices, f"{tp},recompute={recompute}", devices // 8)
                for recompute in ("none", "full")
            ]
        found += [
            OracleCase(model, 8, "dp=8,mbs=1,zero=2,recompute=none", 8),
            OracleCase(model, 8, "dp=8,mbs=1,zero=3,recompute=full", 16),
        ]
    return tuple(found)
