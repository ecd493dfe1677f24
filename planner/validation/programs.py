"""Rows of fine-tuning programs on plain torch: the engine by ZeRO stage, and the options that their words name."""

from collections.abc import Mapping
from typing import Final

from cost_models.specs.job import Scalar
from planner.validation.rows import Run, Unusable

Options = Mapping[str, Scalar]

TORCHTUNE: Final = "torchtune"
LITGPT: Final = "litgpt"
PROGRAMS: Final = (TORCHTUNE, LITGPT)
"""Engine names that stand for the engine that a row's ZeRO stage asks for."""

SHARDING: Final[Mapping[str, str]] = {TORCHTUNE: "fsdp2", LITGPT: "fsdp1"}
"""What shards a program's parameters: FSDP2 in torchtune, Lightning's FSDPStrategy (FSDP1) in litgpt."""

EAGER: Final[Options] = {"engine.modules": "reference", "engine.logits_fp32": False}
"""Their own modules: RMSNorm written out, keys and values repeated to all heads, a loss over logits as they are."""

LADDER: Final[tuple[tuple[str, Options], ...]] = (
    ("packed dataset", {}),
    ("compile", {"engine.compile": True}),
    ("chunked cross entropy", {"engine.cross_entropy_chunks": 8}),
    ("activation checkpointing", {}),
    ("optimizer step in backward", {"engine.optimizer_impl": "in_backward"}),
    ("activation offloading", {"engine.offload_checkpoints": True}),
    ("8-bit AdamW", {}),
)
"""The steps of torchtune's table, each row with those before it; CEWithChunkedOutputLoss has eight chunks."""

CUMULATIVE: Final = "cumulative: + "


def is_program(run: Run) -> bool:
    """Whether a row is of one of the programs."""
    return any(program in run.text("framework").lower() for program in PROGRAMS)


def is_pure(run: Run) -> bool:
    """Whether parameters, gradients and moments are all in bf16."""
    text = run.text("precision").lower()
    return "pure, bf16 optimizer" in text or "bf16-true" in text


def engine_of_program(program: str, run: Run) -> str:
    """fsdp1 or fsdp2 where the row shards, ddp where it replicates, one device under torch."""
    if run.text("zero_stage")[:1] in ("2", "3"):
        return SHARDING[program]
    return "ddp" if run.whole("dp", 1) > 1 else "torch"


def program_options(program: str, run: Run) -> dict[str, Scalar]:
    """What a row of a program states in words; raises Unusable where lengths differ from the stated one."""
    notes = run.text("notes")
    if "shorter than" in notes:
        raise Unusable("sequences are shorter than the stated length, and by how much is not said")
    options: dict[str, Scalar] = dict(EAGER)
    words = run.text("framework").lower()
    if "torchcompile" in words:
        options["engine.compile"] = True
    elif program == LITGPT and "thunder" not in words and engine_of_program(program, run) == "ddp":
        options["engine.gradient_as_bucket_view"] = False  # Lightning leaves torch's default
    if "fused" in run.text("optimizer"):
        options["engine.optimizer_impl"] = "fused"
    step = next((i for i, (words, _) in enumerate(LADDER) if notes.startswith(CUMULATIVE + words)), -1)
    for _, each in LADDER[: step + 1]:
        options |= each
    return options
