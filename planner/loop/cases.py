"""The layouts of the loop: one process, then every way of dividing a step over two and four."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cost_models.specs.job import JobRequest
from planner.request import HuggingFaceModel, PlanRequest, PresetCluster

MODEL: Final[Mapping[str, object]] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
"""28 million parameters: products large enough for a core's full rate, steps short enough for a dozen of them."""

SMALL: Final[Mapping[str, object]] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "num_hidden_layers": 6,
}
"""The same layouts of a model that any machine runs in a moment, to try the command."""

SEQ_LEN: Final = 256
SMALL_SEQ_LEN: Final = 32
PRECISION: Final = "fp32"


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: what stands in the table, and the class whose errors are counted together."""

    strategy: str
    processes: int
    engine: str
    global_batch: int
    group: str

    @property
    def name(self) -> str:
        """Kind, engine and strategy."""
        return f"{self.group} {self.engine} {self.strategy}"


_LAYOUTS: Final = (
    Layout("mbs=2", 1, "torch", 4, "single"),
    Layout("mbs=4", 1, "torch", 8, "single"),
    Layout("mbs=4,recompute=full", 1, "torch", 8, "single"),
    Layout("mbs=2,recompute=selective:mlp", 1, "torch", 4, "single"),
    Layout("dp=2,mbs=2", 2, "ddp", 8, "ddp"),
    Layout("dp=2,mbs=4,recompute=full:3", 2, "ddp", 8, "ddp"),
    Layout("dp=2,mbs=2,zero=1", 2, "torch", 8, "zero1"),
    Layout("dp=2,mbs=2,zero=2", 2, "fsdp2", 8, "fsdp"),
    Layout("dp=2,mbs=2,zero=3", 2, "fsdp2", 8, "fsdp"),
    Layout("tp=2,mbs=2", 2, "torch", 4, "tp"),
    Layout("tp=2,mbs=4", 2, "torch", 8, "tp"),
    Layout("pp=2,mbs=2,stages=3+3", 2, "torch", 8, "pp"),
    Layout("pp=2,mbs=1,schedule=gpipe,stages=4+2", 2, "torch", 4, "pp"),
    Layout("pp=2,dp=2,mbs=1,zero=1,stages=3+3", 4, "torch", 8, "four"),
)


def layouts() -> tuple[Layout, ...]:
    """All layouts, cheapest launches first."""
    return _LAYOUTS


def request_of(layout: Layout, *, small: bool = False) -> PlanRequest:
    """The question that a layout answers, on as many processes of this host."""
    config = {**MODEL, **(SMALL if small else {})}
    return PlanRequest(
        model=HuggingFaceModel(config=config),
        cluster=PresetCluster(name="cpu", devices=layout.processes),
        job=JobRequest.model_validate(
            {
                "seq_len": SMALL_SEQ_LEN if small else SEQ_LEN,
                "global_batch": layout.global_batch,
                "precision": PRECISION,
                "engine": layout.engine,
            }
        ),
    )


def micro_batches() -> tuple[int, ...]:
    """Micro-batch sizes of all layouts: what the profile measures the model's shapes at."""
    return tuple(sorted({_value(layout.strategy, "mbs") for layout in _LAYOUTS}))


def tensor_parallel() -> tuple[int, ...]:
    """Tensor-parallel sizes of all layouts."""
    return tuple(sorted({_value(layout.strategy, "tp") for layout in _LAYOUTS}))


def _value(strategy: str, key: str) -> int:
    found = dict(part.split("=", 1) for part in strategy.split(","))
    return int(found.get(key, "1"))
