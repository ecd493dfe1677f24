"""What is not trained is in a checkpoint all the same: whatever a new run begins with, and in whatever layout."""

from typing import Any

import pytest
import torch

from tests.planner.executor.equality import OPTIONS
from tests.planner.executor.orders import LLAMA, MIXTRAL, tiny_order
from tests.planner.executor.ranks import run_ranks

SAVED_AFTER, MORE = 1, 2
LORA = {"options": {"job.trainable": "lora:r=4"}}
FACTORY = {"factory": "tests.planner.executor.factories:frozen"}
BATCH = {"global_batch": 8}
SMALL = {**LLAMA, "vocab_size": 32, "hidden_size": 16}


@pytest.mark.parametrize(
    ("config", "job", "options", "layouts"),
    [
        (LLAMA, LORA, {}, ("tp=2", "dp=2,zero=3", "pp=2,zero=0,stages=3+1", "dp=2,zero=1")),
        pytest.param(
            MIXTRAL,
            LORA,
            {},
            ("tp=2,ep=2,mbs=2", "dp=2,ep=2,zero=3,mbs=2", "tp=2,etp=2,mbs=2"),
            marks=pytest.mark.matrix,
        ),
        (SMALL, {}, FACTORY, ("dp=2,zero=1", "pp=2,stages=2+2", "dp=2,zero=2", "tp=2,sp=false")),
    ],
    ids=["lora", "lora of experts", "factory"],
)
def test_what_is_frozen_comes_back(tmp_path, config, job, options, layouts) -> None:
    orders = [
        tiny_order(
            text,
            devices=2,
            config=config,
            job={**BATCH, **job},
            **{**OPTIONS, **options, "steps": SAVED_AFTER + MORE, "keep": 0, "checkpoint": str(tmp_path)},
        )
        for text in layouts
    ]
    found = run_ranks(losses, 2, [order.to_json() for order in orders], str(tmp_path), timeout_s=240.0)
    whole, *others = found[0]
    for text, rest in zip(layouts[1:], others, strict=True):
        assert rest == pytest.approx(whole[SAVED_AFTER:], rel=1e-6), text


def losses(rank: int, world: int, documents: list[dict[str, Any]], folder: str) -> list[list[float]]:
    """Losses of the first order, which writes a checkpoint; of the others after it, their frozen parts lost before."""
    from planner.executor.checkpoint.reader import resume
    from planner.executor.checkpoint.writer import CheckpointWriter
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    found = []
    for number, document in enumerate(documents):
        order = order_of_document(document)
        if number:
            order = type(order)(
                order.situation, order.strategy, order.options.model_copy(update={"resume": folder})
            )
        trainer = Trainer(order, torch.device("cpu"))
        frozen = trainer.data_parallel.frozen()
        assert frozen
        if number:
            for held in frozen:
                held.values.zero_()
        start = resume(order, trainer, attempt=0)
        assert start.step == (SAVED_AFTER if number else 0)
        own = []
        for step in range(start.step + 1, order.options.steps + 1):
            own.append(trainer.train_step().loss)
            if not number and step == SAVED_AFTER:
                writer = CheckpointWriter(order, trainer, lambda written: None)
                writer.save(step)
                writer.wait()
        found.append(own)
    return found
