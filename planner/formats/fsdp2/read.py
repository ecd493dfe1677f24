"""The written module -> job and strategy, from its dictionary PLAN; no line of it is run."""

import ast
from typing import Any

from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, beside_job, model_beside


def read_fsdp2(text: str, beside: Beside) -> Settings:
    """Settings of the module; raises BadInput where PLAN is missing or holds what it cannot."""
    keys = Keys(_plan(text))
    model = model_beside(beside, "the module trains the model that MODEL names")
    devices = keys.whole("devices", beside.devices, low=1)
    if devices != beside.devices:
        raise BadInput(f"PLAN is for {devices} devices, the cluster has {beside.devices}; plan again for it")
    replicate, shard = keys.whole("dp_replicate", 1, low=1), keys.whole("dp_shard", 1, low=1)
    dp = replicate * shard
    layers = keys.whole("recomputed_layers", 0)
    offload = keys.text("offload", "none")
    micro, steps = keys.whole("micro_batch", 1, low=1), keys.whole("micro_batches", 1, low=1)
    strategy = StrategyRequest(
        tp=keys.whole("tp", 1, low=1),
        sp=False,
        dp=dp,
        dp_replicate=replicate,
        dp_shard=shard,
        zero=3 if keys.flag("reshard_after_forward", True) else 2,
        mbs=micro,
        recompute="full" if layers >= model.num_blocks else f"full:{layers}" if layers else "none",
        offload=offload,
        act_offload=keys.text("act_offload", "none"),
    )
    options: dict[str, Any] = {
        "engine.modules": "transformers",
        "engine.grad_dtype": keys.text("grad_dtype", "fp32"),
    }
    if keys.text("attention", "sdpa") == "eager":
        options["engine.attention"] = "unfused"
    job = beside_job(
        beside,
        engine="fsdp2",
        global_batch=micro * steps * dp,
        precision=_one_of(Precision, keys, "precision", "bf16"),
        optimizer=_one_of(Optimizer, keys, "optimizer", "adamw"),
        options=options,
    )
    job = job.model_copy(update={"seq_len": job.seq_len or keys.whole("seq_len", low=1)})
    keys.ignore("sync_every_micro_batch", "seq_len")
    return Settings("fsdp2", model, job, strategy, unknown=tuple(keys.unknown()))


def looks_like_fsdp2(text: str) -> bool:
    """A Python module with a PLAN that uses fully_shard."""
    return "fully_shard" in text and "\nPLAN = {" in text


def _plan(text: str) -> dict[str, Any]:
    """The dictionary PLAN, read as a literal."""
    try:
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PLAN":
                found = ast.literal_eval(node.value)
                return found if isinstance(found, dict) else {}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"the module cannot be read: {str(error)[:120]}; export it again") from None
    raise BadInput("the module holds no dictionary PLAN; export it again with planner export --to fsdp2")


def _one_of(kind: Any, keys: Keys, key: str, default: str) -> Any:
    name = keys.text(key, default)
    known = [each.value for each in kind]
    if name not in known:
        raise BadInput(f"{key} {name:.40} is not known; use {', '.join(known)}", pointer=f"/PLAN/{key}")
    return kind(name)
