"""The scaled-down order of `planner run --verify`: the same layout and schedule, a small model, batch and sequence."""

from dataclasses import replace
from typing import Final

from cost_models.errors import BadInput
from cost_models.fine_tuning import without_adapters
from cost_models.specs.job import JobRequest, Precision
from cost_models.specs.model import ModelSpec
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.executor.model.shrink import Shrinkage, kept_blocks, shrink
from planner.executor.request import SYNTHETIC, RunOrder
from planner.situation import situate

MIN_POSITIONS: Final = 16
IMAGE_SIZE: Final = 64
"""Pixels a side: a cumulative stride of 32 leaves 2 x 2 positions."""

MAX_SEQUENCES: Final = 2
"""Sequences of a micro-batch."""


def twin_of(order: RunOrder) -> RunOrder:
    """The order on a small model in fp32 with synthetic data and no dropout; stages, meshes and schedule are kept."""
    if order.options.factory:
        raise BadInput(
            f"a factory's model ({order.options.factory:.80}) has no small twin; verify the plan without --factory"
        )
    strategy, model = order.strategy, without_adapters(order.situation.model)
    blocks, stages = kept_blocks(model, strategy.stages)
    seq_len = _positions(strategy)
    to = Shrinkage(
        tp=strategy.tp,
        heads_over=strategy.tp * (strategy.cp if strategy.cp_kind == "ulysses" else 1),
        experts_over=strategy.ep,
        seq_len=seq_len,
        full_seq_len=order.situation.job.seq_len,
        blocks=blocks,
        image_size=IMAGE_SIZE if model.is_vision else 0,
        features_over=strategy.etp,
    )
    small = shrink(model, to)
    mbs = min(strategy.mbs, MAX_SEQUENCES)
    batch = mbs * strategy.dp * _micro_batches(order)
    situation = situate(
        small, order.situation.cluster, _job(order.situation.job_request, small, seq_len, batch)
    )
    laid_out = replace(strategy, stages=stages, mbs=mbs, recompute=_recompute(strategy, stages))
    options = order.options.model_copy(
        update={"data": SYNTHETIC, "tokenizer": "", "dropout": False, "first_sample": 0, "verify": True}
        | {"weights": "", "save_weights": ""}
    )
    return RunOrder(situation, laid_out, options)


def _positions(strategy: Strategy) -> int:
    """A sequence that context and sequence parallelism divide."""
    unit = 2 * strategy.cp * strategy.tp
    return unit * -(-MIN_POSITIONS // unit)


def _micro_batches(order: RunOrder) -> int:
    """As many as fill the pipeline twice, a multiple of what the schedule asks for; the order's own where fewer."""
    strategy = order.strategy
    filled = 2 * strategy.pp * strategy.vpp
    return min(order.num_micro_batches, filled)


def _job(request: JobRequest, model: ModelSpec, seq_len: int, batch: int) -> JobRequest:
    options = {key: value for key, value in request.options.items() if key != "job.image_size"}
    changes = {
        "seq_len": None if model.is_vision else seq_len,
        "global_batch": batch,
        "precision": Precision.FP32,
        "options": options,
    }
    return request.model_copy(update=changes)


def _recompute(strategy: Strategy, stages: tuple[int, ...]) -> Recompute:
    """None, some or all blocks of each stage recomputed in full, as in the order."""
    full = []
    for before, size, kept in zip(strategy.full_layers(), strategy.stages, stages, strict=True):
        full.append(kept if before == size else min(before, 1))
    if isinstance(strategy.recompute.full, tuple):
        return replace(strategy.recompute, full=tuple(full))
    same = len(set(full)) == 1
    # One number for all stages: a stage smaller than it is recomputed whole, as in the order.
    return replace(strategy.recompute, full=full[0] if same else max(full))
