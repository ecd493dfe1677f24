"""What a checkpoint says of the run that wrote it, and what of that another run must share. Needs no torch."""

from collections.abc import Mapping
from typing import Any

from cost_models.errors import BadInput
from planner.executor.request import RunOrder
from planner.version import planner_version

SAME_DATA = ("seed", "data", "global_batch", "seq_len")
"""Facts without which the position in the data means other samples."""


def facts_of(order: RunOrder) -> dict[str, Any]:
    """Model, layout and options, for people and for the check before it is read."""
    job, options = order.situation.job, order.options
    return {
        "planner": planner_version(),
        "model": options.factory or order.situation.model.name,
        "engine": job.engine,
        "optimizer": job.optimizer.value,
        "precision": job.precision.value,
        "trainable": job.options.trainable,
        "lora_scale": options.lora_scale(job.trainable.rank),
        "strategy": order.strategy.to_json(),
        "layout": order.strategy.text(),
        "world_size": order.world_size,
        "seed": options.seed,
        "data": options.data,
        "global_batch": job.global_batch,
        "seq_len": job.seq_len,
    }


def check_facts(facts: Mapping[str, Any], order: RunOrder) -> None:
    """Raise BadInput where the checkpoint's states are another optimizer's, or of other parameters."""
    written, own = facts.get("optimizer"), order.situation.job.optimizer.value
    if written != own:
        raise BadInput(
            f"the checkpoint holds states of optimizer {written}, and the plan trains with {own}; plan again with "
            f"--optimizer {written}"
        )
    trained, asked = facts.get("trainable", ""), order.situation.job.options.trainable
    if trained and trained != asked:
        raise BadInput(
            f"the checkpoint is of job.trainable={trained:.80}, and the plan of {asked:.80}; plan again with "
            f"--set job.trainable={trained:.80}"
        )
    scale = order.options.lora_scale(order.situation.job.trainable.rank)
    before = facts.get("lora_scale", scale)
    if before != scale:
        alpha = before * order.situation.job.trainable.rank
        raise BadInput(
            f"the checkpoint's adapters are multiplied by {before:g}, and this run's by {scale:g}; give --lora-alpha "
            f"{alpha:g}"
        )


def changed_facts(facts: Mapping[str, Any], order: RunOrder) -> tuple[str, ...]:
    """What decides the data and is not as it was when the checkpoint was written."""
    own = facts_of(order)
    return tuple(
        f"{name} {facts.get(name)!s:.100} -> {own[name]!s:.100}"
        for name in SAME_DATA
        if facts.get(name) != own[name]
    )
