"""One rank of an order, two steps over fake tensors -> what lives at the peak of every phase of the second."""

from collections.abc import Mapping
from typing import Any
from unittest import mock

import torch

from cost_models.errors import BadInput
from planner.executor import step
from planner.executor.mesh import build_meshes
from planner.executor.oracle.fake import fake_rank, really
from planner.executor.oracle.tracker import PhaseTracker, Place
from planner.executor.request import RunOrder

Peaks = Mapping[Place, Mapping[str, float]]
"""Bytes by torch's category, and their total, at the peak of each phase and unit."""


def measure(order: RunOrder, rank: int = 0) -> Peaks:
    """Run the executor's own training step as one rank of the order's world; nothing is allocated or sent.

    The first step makes the optimizer's states, the second is measured. Raises BadInput for ZeRO 0 and 1, and for
    pipelines, which torch's tracker does not follow.
    """
    strategy = order.strategy
    if strategy.zero < 2 or strategy.pp > 1:
        raise BadInput(
            f"the oracle follows FSDP2 alone, not zero {strategy.zero} with pp {strategy.pp}; use zero 2 or 3 and pp 1"
        )
    real_meshes: Any = really(build_meshes)
    with fake_rank(rank, strategy.world_size), mock.patch.object(step, "build_meshes", real_meshes):
        trainer = step.Trainer(order, torch.device("cpu"))
        data_parallel = trainer.data_parallel
        tracker = PhaseTracker(data_parallel.modules[0], data_parallel.optimizer)
        with tracker:
            trainer.train_step()
            tracker.start_step()
            trainer.train_step()
        return dict(tracker.peaks)
