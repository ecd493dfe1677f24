"""A strategy -> Megatron-LM arguments; what they cannot say is refused with what they can."""

from dataclasses import replace
from typing import Final

from cost_models.engines.megatron_fsdp import STRATEGIES
from cost_models.engines.options import MegatronOptions
from cost_models.errors import BadInput
from cost_models.operators.context import inner_ranks
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.specs.offload import parse_act_offload
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy
from planner.formats.export import PlannedRun
from planner.formats.megatron.tokens import Raw
from planner.situation import changed

PIPELINE_LAST_BUT_ONE: Final = ("tp", "cp", "ep", "pp", "dp")
CP_KINDS: Final = {"ring": "p2p", "allgather": "all_gather", "ulysses": "a2a"}


def strategy_arguments(strategy: Strategy, model: ModelSpec, job: Job, options: MegatronOptions) -> Raw:
    """Arguments of degrees, sharding, stages, recompute and offload; raises BadInput naming the knob."""
    predictions = model.num_predictions if job.options.train_mtp else 0
    found: Raw = {
        "tensor-model-parallel-size": str(strategy.tp),
        "pipeline-model-parallel-size": str(strategy.pp),
        "context-parallel-size": str(strategy.cp),
        "micro-batch-size": str(strategy.mbs),
    }
    if strategy.sp:
        found["sequence-parallel"] = "true"
    if strategy.cp > 1:
        found |= _context(strategy)
    if model.is_moe:
        found["expert-model-parallel-size"] = str(strategy.ep)
        found["expert-tensor-parallel-size"] = str(strategy.etp)
    return (
        found
        | _order(strategy)
        | _sharding(strategy, options.megatron_fsdp)
        | _stages(strategy, predictions, options.mtp_in_stages)
        | _recompute(strategy)
        | _offload(strategy)
        | _act_offload(strategy)
    )


def _context(strategy: Strategy) -> Raw:
    """How attention crosses context ranks."""
    inner = inner_ranks(strategy.cp_kind)
    if not inner:
        return {"cp-comm-type": CP_KINDS[strategy.cp_kind]}
    sizes = f"{inner} {strategy.cp // inner}"
    return {"cp-comm-type": "a2a+p2p", "hierarchical-context-parallel-sizes": sizes}


def _order(strategy: Strategy) -> Raw:
    """Ranks of a node are tensor-parallel first; the pipeline stands outside data parallel, or inside where asked."""
    if strategy.order == DEFAULT_ORDER:
        return {}
    if strategy.order == PIPELINE_LAST_BUT_ONE:
        return {"use-tp-pp-dp-mapping": "true"}
    raise BadInput(
        f"order {'-'.join(strategy.order)} is not one of Megatron-LM's two; use {'-'.join(DEFAULT_ORDER)} or "
        f"{'-'.join(PIPELINE_LAST_BUT_ONE)} (--pin order=…)"
    )


def _sharding(strategy: Strategy, megatron_fsdp: bool) -> Raw:
    """The distributed optimizer and its replicas, or the sharding strategy of Megatron-FSDP."""
    found: Raw = {}
    if megatron_fsdp:
        found |= {"use-megatron-fsdp": "true", "data-parallel-sharding-strategy": STRATEGIES[strategy.zero]}
        found |= {"ckpt-format": "fsdp_dtensor"}
    if strategy.zero:
        found["use-distributed-optimizer"] = "true"
    if strategy.dp_replicate > 1 and strategy.zero:
        found["num-distributed-optimizer-instances"] = str(strategy.dp_replicate)
    return found


def _stages(strategy: Strategy, predictions: int, counted: bool) -> Raw:
    """Nothing for one stage or equal ones, the number of virtual stages, or a layout that names every stage.

    Where stages count the prediction layers as their last block, these stand in the last stage that holds one.
    """
    blocks = list(strategy.stages)
    holder = max(stage for stage, size in enumerate(blocks) if size) if counted else len(blocks) - 1
    blocks[holder] -= counted
    if strategy.pp == 1:
        return {}
    if len(set(blocks)) == 1 and holder == len(blocks) - 1:
        return {"num-virtual-stages-per-pipeline-rank": str(strategy.vpp)} if strategy.vpp > 1 else {}
    parts = [f"t*{size}" if size > 1 else "t" * size for size in blocks]
    parts[0] = "E" + parts[0]
    parts[holder] += "m" * predictions
    parts[-1] += "L"
    return {"pipeline-model-parallel-layout": "|".join(parts)}


def with_the_loss(run: PlannedRun) -> PlannedRun:
    """The same run where stages count prediction layers that stand with the loss: as settings say it, uncounted."""
    stages = run.strategy.stages
    if not run.model.mtp_in_stages or not stages[-1]:
        return run
    of = changed(run.situation, {"options": {"engine.mtp_in_stages": False}})
    return replace(run, situation=of, strategy=replace(run.strategy, stages=(*stages[:-1], stages[-1] - 1)))


def _recompute(strategy: Strategy) -> Raw:
    """Modules, every layer, or the first layers of each virtual stage."""
    recompute = strategy.recompute
    full = recompute.full
    if isinstance(full, tuple):
        counts = set(recompute.full_layers(strategy.stages))
        if len(counts) > 1:
            raise BadInput(
                f"recompute {recompute.text()} has another number of layers for each stage; Megatron-LM has one for "
                f"all (--recompute-num-layers), use full:{max(counts)}"
            )
        full = counts.pop()
    if full and recompute.scopes:
        raise BadInput(
            f"recompute {recompute.text()} mixes full and selective layers; Megatron-LM takes one, use full:{full} or "
            f"selective:{'+'.join(recompute.scopes)}"
        )
    if full == ALL_LAYERS:
        return {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": "1"}
    if full:
        return {
            "recompute-granularity": "full",
            "recompute-method": "block",
            "recompute-num-layers": str(full),
        }
    if recompute.scopes:
        return {"recompute-granularity": "selective", "recompute-modules": " ".join(recompute.scopes)}
    return {}


def _offload(strategy: Strategy) -> Raw:
    """The optimizer's share on the host."""
    if strategy.offload == "none":
        return {}
    name, _, share = strategy.offload.partition(":")
    if name != "optimizer" or "+" in strategy.offload:
        raise BadInput(
            f"offload {strategy.offload} is not written as Megatron-LM arguments; use offload=optimizer:0.5"
        )
    return {
        "optimizer-cpu-offload": "true",
        "optimizer-offload-fraction": share or "1.0",
        "use-precision-aware-optimizer": "true",
    }


def _act_offload(strategy: Strategy) -> Raw:
    """Activations of the first layers, or of single modules, on the host."""
    moved = parse_act_offload(strategy.act_offload)
    if moved.modules:
        return {"fine-grained-activation-offloading": "true", "offload-modules": " ".join(moved.modules)}
    return {"cpu-offloading-num-layers": str(moved.blocks)} if moved.blocks else {}
