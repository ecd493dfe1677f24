"""Megatron-LM inside Accelerate: `megatron_lm_config` -> job and strategy.

Keys: accelerate/utils/dataclasses.py (MegatronLMPlugin), whose defaults are one degree, one micro-batch, no recompute
and no distributed optimizer.
"""

from typing import Final

from cost_models.engines.rules import nearest_worlds
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, batch_of, beside_job, model_beside

PREFIX: Final = "megatron_lm_"


def read_inside_megatron(
    keys: Keys, beside: Beside, precision: Precision, ignored: tuple[str, ...]
) -> Settings:
    """Settings of the section; raises BadInput naming the key."""
    section = keys.inside("megatron_lm_config")
    model = model_beside(beside, "Accelerate settings do not say which model they train")
    tp, pp = (section.whole(f"{PREFIX}{name}_degree", 1, low=1) for name in ("tp", "pp"))
    if beside.devices % (tp * pp):
        raise BadInput(
            f"{beside.devices} processes are not divisible by tp {tp} x pp {pp} = {tp * pp}; use "
            + ", or ".join(nearest_worlds(beside.devices, tp * pp, "tp x pp")),
            pointer="/megatron_lm_config",
        )
    dp, assumed = beside.devices // (tp * pp), list[str]()
    names = ("per_device_train_batch_size", f"{PREFIX}num_micro_batches", "global_batch")
    micro, batch = batch_of((0, section.whole(names[1], 0), 0), names, dp, beside, assumed)
    strategy = StrategyRequest(
        tp=tp,
        pp=pp,
        dp=dp,
        mbs=micro,
        sp=section.flag(f"{PREFIX}sequence_parallelism") and tp > 1,
        zero=1 if section.flag(f"{PREFIX}use_distributed_optimizer") else 0,
        recompute="selective" if section.flag(f"{PREFIX}recompute_activations") else "none",
    )
    section.ignore(f"{PREFIX}gradient_clipping")
    job = beside_job(
        beside,
        engine="megatron",
        global_batch=batch,
        precision=precision,
        optimizer=Optimizer.ADAMW,
        options={},
    )
    left_out = keys.ignored(*ignored)
    return Settings("accelerate", model, job, strategy, tuple(assumed), left_out, tuple(keys.unknown()))
