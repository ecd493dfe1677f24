"""Layouts under which adapters are trained, to be held against one process."""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.planner.executor.equality import Layout
from tests.planner.executor.orders import DEEPSEEK, LLAMA, MIXTRAL

ALL: Final = "lora:r=4"
# Data parallel of every kind; both tensor-parallel ways; a split backward; experts over ep, etp and data ranks.
TWO: Final[tuple[tuple[str, Mapping[str, object], str, str], ...]] = (
    ("dp=2,zero=0", LLAMA, ALL, "ddp"),
    ("dp=2,zero=1", LLAMA, ALL, "torch"),
    ("dp=2,zero=2,recompute=full:1", LLAMA, "lora:r=4,targets=down", "fsdp2"),
    ("dp=2,zero=3", LLAMA, "lora:r=4,targets=q+v", "torch"),
    ("tp=2,recompute=selective:mlp", LLAMA, ALL, "torch"),
    ("tp=2,sp=false", LLAMA, ALL, "torch"),
    ("pp=2,schedule=zb-h1,stages=2+2", LLAMA, ALL, "torch"),
    # The first stage, with the only dense block, trains nothing.
    ("pp=2,mbs=2,zero=0,stages=1+1", DEEPSEEK, "lora:r=4,targets=expert_down", "torch"),
    ("cp=2", LLAMA, ALL, "torch"),
    ("tp=2,ep=2,mbs=2", MIXTRAL, ALL, "torch"),
    ("dp=2,ep=2,zero=3,mbs=2", MIXTRAL, ALL, "torch"),
    ("tp=2,etp=2,mbs=2", MIXTRAL, "lora:r=4,targets=expert_gate_up+expert_down", "torch"),
    ("tp=2,ep=2,mbs=4", DEEPSEEK, ALL, "torch"),
)
EIGHT: Final[tuple[tuple[str, Mapping[str, object], str, str], ...]] = (
    ("pp=2,dp=2,tp=2,zero=1,stages=3+1", LLAMA, ALL, "torch"),
    ("pp=2,dp=2,tp=2,zero=3,stages=1+3", LLAMA, ALL, "torch"),
)


def adapted_layouts(
    cases: tuple[tuple[str, Mapping[str, object], str, str], ...], devices: int
) -> list[Layout]:
    """Layouts of so many processes; B is drawn too, so that no gradient of A is zero."""
    return [
        Layout(
            f"{config['model_type']} {trainable}",
            strategy,
            devices,
            engine,
            config=config,
            job={"global_batch": 8, "options": {"job.trainable": trainable}},
            options={"lora_init": "random"},
        )
        for strategy, config, trainable, engine in cases
    ]


def all_layouts() -> Iterator[Layout]:
    """Every one."""
    yield from adapted_layouts(TWO, 2)
    yield from adapted_layouts(EIGHT, 8)
