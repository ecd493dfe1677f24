"""DeepSpeed and Megatron-LM inside Accelerate's YAML: their sections of a planned run.

Keys: accelerate/utils/dataclasses.py (DeepSpeedPlugin, MegatronLMPlugin); what they cannot say is refused by name.
"""

from typing import Any, Final, cast

from cost_models.engines.options import DeepSpeedOptions, MegatronOptions
from cost_models.errors import BadInput
from cost_models.specs.offload import parse_offload
from cost_models.specs.recompute import Recompute
from planner.formats.accelerate.inside_megatron import PREFIX
from planner.formats.export import PlannedRun

SELECTIVE: Final = ("core_attn",)
"""What `recompute_activations` means: Megatron-LM's selective recompute of core attention."""


def deepspeed_section(run: PlannedRun) -> dict[str, Any]:
    """`deepspeed_config`; raises BadInput where only DeepSpeed's own JSON says what is planned."""
    plan = run.strategy
    options = cast(DeepSpeedOptions, run.situation.engine.options)
    for axis in ("tp", "pp", "cp", "ep"):
        if getattr(plan, axis) > 1:
            raise BadInput(
                f"{axis} {getattr(plan, axis)}: Accelerate's deepspeed_config divides data alone; use {axis} 1, or "
                "export --to deepspeed"
            )
    offload = parse_offload(plan.offload)
    if 0 < offload.optimizer < 1:
        raise BadInput(
            f"offload {plan.offload}: Accelerate's deepspeed_config offloads all of the optimizer or none; use "
            "offload=optimizer, or export --to deepspeed"
        )
    found: dict[str, Any] = {
        "zero_stage": plan.zero,
        "gradient_accumulation_steps": plan.num_micro_batches(run.job.global_batch),
        "gradient_clipping": 1.0,
        "zero3_init_flag": plan.zero == 3,
    }
    for name, used in (
        ("optimizer", offload.optimizer or offload.parameters),
        ("param", offload.parameters),
    ):
        found[f"offload_{name}_device"] = options.offload_device if used else "none"
        if used and options.offload_device == "nvme":
            found[f"offload_{name}_nvme_path"] = "/local_nvme"
    return found


def megatron_section(run: PlannedRun) -> dict[str, Any]:
    """`megatron_lm_config`; raises BadInput where only Megatron-LM's own arguments say what is planned."""
    plan = run.strategy
    options = cast(MegatronOptions, run.situation.engine.options)
    unsaid = {
        "cp": plan.cp > 1,
        "ep": plan.ep > 1,
        "vpp": plan.vpp > 1,
        "stages": len(set(plan.stages)) > 1,
        "recompute": plan.recompute not in (Recompute(), Recompute(scopes=SELECTIVE)),
        "dp_replicate": plan.zero > 0 and plan.dp_replicate > 1,
        "offload": plan.offload != "none",
        "engine.megatron_fsdp": options.megatron_fsdp,
    }
    names = [name for name, is_used in unsaid.items() if is_used]
    if names:
        raise BadInput(
            f"{', '.join(names)} of {plan.text()}: Accelerate's megatron_lm_config has degrees of tensor and pipeline, "
            "the distributed optimizer and recompute of core attention alone; export --to megatron"
        )
    return {
        f"{PREFIX}tp_degree": plan.tp,
        f"{PREFIX}pp_degree": plan.pp,
        f"{PREFIX}num_micro_batches": plan.num_micro_batches(run.job.global_batch),
        f"{PREFIX}sequence_parallelism": plan.sp,
        f"{PREFIX}recompute_activations": bool(plan.recompute.scopes),
        f"{PREFIX}use_distributed_optimizer": plan.zero == 1,
        f"{PREFIX}gradient_clipping": 1.0,
    }
