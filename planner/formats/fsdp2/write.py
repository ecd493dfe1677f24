"""A planned run of engine fsdp2 -> a Python module and its launch line."""

from pprint import pformat
from typing import Any, Final

from cost_models.engines.options import TorchOptions
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.recompute import ALL_LAYERS
from planner.formats.differences import read_back_losses
from planner.formats.export import Export, PlannedRun, header, library_script, torchrun_lines
from planner.formats.fsdp2.read import read_fsdp2
from planner.formats.fsdp2.template import TEMPLATE
from planner.formats.trainer import module_losses

MODULE: Final = "parallelize.py"
LAUNCH: Final = "train.sh"
VERSION: Final = "torch 2.6 and later"
PRECISIONS: Final = (Precision.BF16, Precision.FP16, Precision.FP32, Precision.TF32)
OPTIMIZERS: Final = (Optimizer.ADAMW, Optimizer.SGD)
SPLIT_NAMES: Final = frozenset(
    ("llama", "mistral", "qwen2", "qwen3", "olmo2", "granite", "phi3", "gemma", "gemma2")
)
"""Families whose layers have q_proj … down_proj, which the module's tensor-parallel plan names."""


def write_fsdp2(run: PlannedRun) -> Export:
    """The module and its launch line; raises BadInput naming what it does not do."""
    _refuse(run)
    text = TEMPLATE.format(
        header="\n".join(header(run, "FSDP2", VERSION)),
        plan=pformat(plan_of(run), sort_dicts=False, width=100),
    )
    losses = read_back_losses(run, lambda beside: read_fsdp2(text, beside))
    files = {MODULE: text, LAUNCH: library_script(run, ("FSDP2", VERSION), torchrun_lines(run), MODULE)}
    return Export("fsdp2", VERSION, files, LAUNCH, (*losses, *module_losses(run)))


def plan_of(run: PlannedRun) -> dict[str, Any]:
    """PLAN of the module: everything that memory and time rest on."""
    strategy, job, options = run.strategy, run.job, run.situation.engine.options
    return {
        "devices": strategy.world_size,
        "tp": strategy.tp,
        "dp_replicate": strategy.dp_replicate,
        "dp_shard": strategy.dp_shard,
        "reshard_after_forward": strategy.zero == 3,
        "recomputed_layers": _recomputed(run),
        "offload": strategy.offload,
        "act_offload": strategy.act_offload,
        "micro_batch": strategy.mbs,
        "micro_batches": strategy.num_micro_batches(job.global_batch),
        "seq_len": job.seq_len,
        "precision": job.precision.value,
        "grad_dtype": options.grad_dtype,
        "optimizer": job.optimizer.value,
        "attention": "eager" if options.attention == "unfused" else "sdpa",
        "sync_every_micro_batch": True,
    }


def _recomputed(run: PlannedRun) -> int:
    """First layers that are recomputed; raises BadInput for scopes inside a layer."""
    recompute = run.strategy.recompute
    if recompute.scopes:
        raise BadInput(
            f"recompute {recompute.text()}: the module wraps whole layers; use recompute none, full or full:K"
        )
    if recompute.full == ALL_LAYERS:
        return run.model.num_blocks
    return recompute.full_layers(run.strategy.stages)[0]


def _refuse(run: PlannedRun) -> None:
    """What the module does not do."""
    strategy, job = run.strategy, run.job
    if job.engine != "fsdp2" or not isinstance(run.situation.engine.options, TorchOptions):
        raise BadInput(f"the plan is for engine {job.engine}; plan again with --engine fsdp2")
    if strategy.cp > 1:
        raise BadInput(
            f"cp {strategy.cp}: the module has no context parallelism; use cp 1, or export to torchtitan"
        )
    if job.precision not in PRECISIONS or job.optimizer not in OPTIMIZERS:
        raise BadInput(
            f"precision {job.precision.value} with {job.optimizer.value}: the module takes "
            f"{', '.join(each.value for each in PRECISIONS)} with {', '.join(each.value for each in OPTIMIZERS)}"
        )
    if job.options.trainable != "all" or run.model.is_vision or len(run.model.stacks) > 1:
        raise BadInput(f"{run.model.name}: the module trains all parameters of a causal language model")
    if strategy.tp > 1 and run.model.family not in SPLIT_NAMES:
        raise BadInput(
            f"tp {strategy.tp} of family {run.model.family}: the module splits q_proj to down_proj of "
            f"{', '.join(sorted(SPLIT_NAMES))}; use tp 1"
        )
