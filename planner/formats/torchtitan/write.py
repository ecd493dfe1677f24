"""A planned run -> torchtitan 0.3's command line."""

from typing import Final, cast

from cost_models.engines.options import TorchtitanOptions
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.recompute import ALL_LAYERS
from planner.formats.differences import read_back_losses
from planner.formats.export import Export, PlannedRun, header
from planner.formats.torchtitan.flavors import config_name, flavor_of
from planner.formats.torchtitan.read import read_torchtitan
from planner.formats.torchtitan.stages import MODULE, PROGRAM, SCHEDULES, options_of

SCRIPT: Final = "train.sh"
VERSION: Final = "0.3"
OPTIMIZERS: Final = {Optimizer.ADAMW: "AdamW", Optimizer.MUON: "Muon"}


def write_torchtitan(run: PlannedRun) -> Export:
    """The script, with what it cannot say; raises BadInput naming what torchtitan cannot do."""
    if run.job.engine != "torchtitan":
        raise BadInput(
            f"the plan is for engine {run.job.engine}, whose memory and legality are not torchtitan's; plan again with "
            "--engine torchtitan"
        )
    if run.job.precision is not Precision.BF16:
        raise BadInput(
            f"precision {run.job.precision.value} is a registry entry of torchtitan (llama3_8b_mxfp8), not an option; "
            "export bf16 and choose the entry by CONFIG"
        )
    if run.job.optimizer not in OPTIMIZERS:
        raise BadInput(f"optimizer {run.job.optimizer.value} is not among torchtitan's; use adamw or muon")
    lines = [*_parallelism(run), *_training(run), *_compile(run), _checkpointing(run)]
    named = _names_stages(run)
    script = _script(run, lines, named)
    losses = read_back_losses(run, lambda beside: read_torchtitan(script, beside))
    files = {SCRIPT: script} | ({f"{MODULE}.py": PROGRAM} if named else {})
    return Export("torchtitan", VERSION, files, SCRIPT, losses)


def _names_stages(run: PlannedRun) -> bool:
    """Whether the stages are named layer by layer: cuts that no option makes."""
    plan = run.strategy
    return plan.pp > 1 and options_of(plan.stages, plan.pp, plan.schedule.value) is None


def _options(run: PlannedRun) -> TorchtitanOptions:
    return cast(TorchtitanOptions, run.situation.engine.options)


def _parallelism(run: PlannedRun) -> list[str]:
    """Degrees, resharding, pipeline."""
    strategy, prefix = run.strategy, "--parallelism."
    degrees = {
        "data_parallel_replicate_degree": strategy.dp_replicate,
        "data_parallel_shard_degree": strategy.dp_shard,
        "tensor_parallel_degree": strategy.tp,
        "context_parallel_degree": strategy.cp,
        "pipeline_parallel_degree": strategy.pp,
        "expert_parallel_degree": strategy.ep,
    }
    lines = [f"{prefix}{name} {size}" for name, size in degrees.items()]
    lines.append(f"{prefix}fsdp_reshard_after_forward {'always' if strategy.zero == 3 else 'never'}")
    if strategy.tp > 1 and not strategy.sp:
        lines.append(f"{prefix}no_enable_sequence_parallel")
    return lines + (_pipeline(run) if strategy.pp > 1 else [])


def _pipeline(run: PlannedRun) -> list[str]:
    """Schedule and cuts; those that no option makes are named in a module beside the script."""
    strategy, prefix = run.strategy, "--parallelism."
    cuts = options_of(strategy.stages, strategy.pp, strategy.schedule.value) or {}
    lines = [
        f"{prefix}pipeline_parallel_schedule {SCHEDULES[strategy.schedule.value]}",
        f"{prefix}pipeline_parallel_microbatch_size {strategy.mbs}",
    ]
    return lines + [f"{prefix}{name} {value}" for name, value in cuts.items()]


def _training(run: PlannedRun) -> list[str]:
    """Batches, sequence, precision of the reduction."""
    strategy, job = run.strategy, run.job
    local = job.global_batch // strategy.dp if strategy.pp > 1 else strategy.mbs
    lines = [
        f"--training.local_batch_size {local}",
        f"--training.global_batch_size {job.global_batch}",
        f"--training.seq_len {job.seq_len}",
        "--training.steps 50",
        "--training.mixed_precision_param bfloat16",
        "--training.mixed_precision_reduce float32",  # 0.3 takes nothing else
        f"--optimizer.param_groups.0.optimizer_name {OPTIMIZERS[job.optimizer]}",
    ]
    if strategy.pp > 1 or strategy.ep > 1:  # 0.3 refuses its graphs with either
        lines.append("--training.disable_cuda_graphs")
    if strategy.offload == "parameters":
        lines.append("--training.enable_cpu_offload")
    return lines


def _compile(run: PlannedRun) -> list[str]:
    options = _options(run)
    lines = ["--compile.enable"] if options.compile else []
    return lines + (["--compile.enable_async_tensor_parallel"] if options.async_tp else [])


def _checkpointing(run: PlannedRun) -> str:
    """The activation-checkpoint subcommand; raises BadInput for what it cannot say."""
    recompute = run.strategy.recompute
    every = recompute.full_layers(run.strategy.stages) == run.strategy.stages
    if recompute.full == ALL_LAYERS or every:
        return "activation-checkpoint:full"
    if recompute.full not in (0, ()):
        raise BadInput(
            f"recompute {recompute.text()}: torchtitan recomputes all layers in full or none; use full or selective"
        )
    return f"activation-checkpoint:{'selective' if recompute.scopes else 'none'}"


def _script(run: PlannedRun, lines: list[str], names_stages: bool) -> str:
    """The whole script; the caller's own words come last and win."""
    nodes, each = run.nodes
    flavor = flavor_of(run.model)
    module = f'"${{MODULE:-{flavor[0]}}}"' if flavor else '"${MODULE:?set MODULE to a module of torchtitan}"'
    config = (
        f'"${{CONFIG:-{config_name(*flavor)}}}"'
        if flavor
        else '"${CONFIG:?set CONFIG to an entry of its registry}"'
    )
    before: list[str] = []
    if names_stages:
        before = [
            f"export MODULE={module} CONFIG={config}",
            f"export STAGES={'+'.join(map(str, run.strategy.stages))}  # layers of every stage, read by {MODULE}.py",
            'export PYTHONPATH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)${PYTHONPATH:+:$PYTHONPATH}"',
        ]
        module, config = MODULE, "planned"
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *header(run, "torchtitan", VERSION),
            "set -euo pipefail",
            *before,
            "",
            "torchrun \\",
            f'  --nnodes "${{NNODES:-{nodes}}}" --nproc-per-node {each} --rdzv-backend c10d \\',
            '  --rdzv-endpoint "${MASTER_ADDR:-127.0.0.1}:${MASTER_PORT:-29500}" \\',
            f"  -m torchtitan.train --module {module} --config {config} \\",
            *(f"  {line} \\" for line in lines),
            '  "$@"',
            "",
        ]
    )
