"""What a run goes on from: the last checkpoint that is whole, with the random numbers it would have drawn."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cost_models.errors import BadInput
from planner.executor.checkpoint.store import folder_of
from tests.planner.executor.checkpoint.resharding import LAYOUTS, Layout, difference
from tests.planner.executor.ranks import run_ranks

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 64,
    "n_positions": 32,
    "resid_pdrop": 0.3,
    "embd_pdrop": 0.3,
    "attn_pdrop": 0.0,
}


def keep_three(rank: int, world: int, document: dict[str, Any]) -> None:
    """A run of three steps with a checkpoint of each."""
    from planner.executor.checkpoint.writer import CheckpointWriter
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    order = order_of_document(document)
    trainer = Trainer(order, torch.device("cpu"))
    writer = CheckpointWriter(order, trainer, lambda written: None)
    for step in (1, 2, 3):
        trainer.train_step()
        writer.save(step)
    writer.wait()


def go_on(rank: int, world: int, documents: list[dict[str, Any]]) -> list[Any]:
    """Where runs go on (step, position, what was passed over, learning rate), or why they do not."""
    from planner.executor.checkpoint.reader import resume
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    found: list[Any] = []
    for document in documents:
        order = order_of_document(document)
        trainer = Trainer(order, torch.device("cpu"))
        try:
            resumed = resume(order, trainer, attempt=0)
        except BadInput as error:
            found.append(str(error))
        else:
            at = (resumed.step, trainer.sampler.next_sample)
            found.append((*at, resumed.skipped, trainer.data_parallel.lr))
    return found


def test_the_last_whole_checkpoint_is_taken(tmp_path: Path) -> None:
    one = Layout("", 1)
    run_ranks(keep_three, 1, one.order(checkpoint=str(tmp_path), keep=0).to_json())
    newest = folder_of(tmp_path, 3) / "__0_0.distcp"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    folder_of(tmp_path, 2).rename(tmp_path / "step-000000002.partial-x")
    orders = (
        one.order(checkpoint=str(tmp_path), resume="auto"),
        one.order(resume=str(folder_of(tmp_path, 3))),
        Layout("", 1, config=GPT2).order(resume=str(folder_of(tmp_path, 1))),
    )
    ((auto, by_name, other),) = run_ranks(go_on, 1, [order.to_json() for order in orders])
    # Rates rise over six steps to 3e-3, so the second step has 2/6 of it.
    passed_over = "step-000000003: __0_0.distcp does not have its checksum"
    assert auto == (1, 16, (passed_over,), pytest.approx(3e-3 * 2 / 6))
    assert "holds no good checkpoint" in by_name
    assert "it is of another model" in other


@pytest.mark.matrix
def test_what_is_dropped_goes_on_too(tmp_path: Path) -> None:
    layout = Layout("dp=2,zero=1", 2, config=GPT2, options={"dropout": True})
    assert difference(layout, layout, tmp_path) == 0.0


def test_layouts_of_the_matrix_are_different() -> None:
    assert len({(layout.engine, layout.strategy) for layout in LAYOUTS}) == len(LAYOUTS)
