"""What of context and expert parallelism is not run: by which engines, and with which options."""

from collections.abc import Iterator
from typing import Final

from cost_models.errors import Violation
from cost_models.operators import Attention
from planner.executor.positions import ULYSSES
from planner.executor.request import RunOrder

DIVIDING: Final = ("torch", "fsdp2")
"""Engines that reduce what is divided over other ranks than the rest apart."""


def context_violations(order: RunOrder) -> list[Violation]:
    """Keys that travel meet queries in an attention of this executor, which keeps no scores and draws no dropout."""
    strategy, engine = order.strategy, order.situation.engine.options
    if strategy.cp == 1:
        return []
    name = order.situation.job.engine
    if name not in DIVIDING:
        detail = f"cp {strategy.cp} is not run under engine {name}"
        return [Violation("run_cp", detail, tuple(f"--engine {each}" for each in DIVIDING))]
    if strategy.cp_kind == ULYSSES:
        return []
    found = []
    if engine.attention == "unfused":
        detail = f"engine.attention=unfused is not run with cp_kind={strategy.cp_kind}, which keeps no scores"
        found.append(Violation("run_cp_unfused", detail, ("--set engine.attention=flash", "cp_kind=ulysses")))
    dropout = engine.dropout if order.options.dropout is None else order.options.dropout
    if dropout and any(getattr(op, "dropout", False) for op in _attentions(order)):
        detail = f"dropout of attention scores is not run with cp_kind={strategy.cp_kind}"
        found.append(Violation("run_cp_dropout", detail, ("--set engine.dropout=false", "cp_kind=ulysses")))
    return found


def expert_violations(order: RunOrder) -> list[Violation]:
    """Experts are divided by the engines that reduce their gradients apart; tensor-parallel ranks share the tokens."""
    strategy, job = order.strategy, order.situation.job
    if not order.situation.model.is_moe:
        return []
    found = []
    if strategy.ep * strategy.etp > 1 and job.engine not in DIVIDING:
        detail = f"ep {strategy.ep} and etp {strategy.etp} are not run under engine {job.engine}, which copies experts"
        found.append(Violation("run_ep", detail, tuple(f"--engine {name}" for name in DIVIDING)))
    positions = job.seq_len // strategy.cp
    if positions % strategy.tp:
        detail = f"tp {strategy.tp} ranks route {positions} positions between them, which {strategy.tp} does not divide"
        found.append(
            Violation("run_moe_positions", detail, (f"a sequence length divisible by {strategy.tp}",))
        )
    return [*found, *_exchange(order)]


def _exchange(order: RunOrder) -> list[Violation]:
    """Every copy of a token travels by itself in the compute dtype."""
    if not order.situation.model.is_moe or order.strategy.ep == 1:
        return []
    options = order.situation.job.options
    found = []
    if options.moe_dispatcher != "alltoall":
        detail = f"job.moe_dispatcher={options.moe_dispatcher} is not run by this executor"
        found.append(Violation("run_moe_dispatcher", detail, ("--set job.moe_dispatcher=alltoall",)))
    if options.moe_dispatch_dtype != "bf16":
        detail = f"job.moe_dispatch_dtype={options.moe_dispatch_dtype} is not run: copies travel as computed"
        found.append(Violation("run_moe_dispatch_dtype", detail, ("--set job.moe_dispatch_dtype=bf16",)))
    return found


def _attentions(order: RunOrder) -> Iterator[Attention]:
    for kind in order.situation.model.kinds.values():
        yield from (operator for operator in kind.operators if isinstance(operator, Attention))
