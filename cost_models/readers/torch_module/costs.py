"""Runs at several lengths -> exact polynomials of the length for every unit, and attention as calls of a form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from cost_models.operators.base import DtypeRole
from cost_models.operators.traced import Growth
from cost_models.readers.torch_module.fits import Fits
from cost_models.readers.torch_module.inputs import (
    candidates,
    counts_images,
    counts_tokens,
    image_size,
    token_limit,
)
from cost_models.readers.torch_module.ledger import AttentionCall, Cost
from cost_models.readers.torch_module.quiet import one_line
from cost_models.readers.torch_module.trace import Call, Key, Prepared, Run, run, timed

if TYPE_CHECKING:
    from torch import nn

FULL_LENGTH: Final = 2048
SHORT_LENGTH: Final = 256
SLOW_RUN_S: Final = 2.0
"""A run at 256 positions that takes longer (a recurrence in Python) is repeated at short lengths only."""
LEAST_RUNS: Final = 3
"""Lengths that a square needs; the fourth only confirms it."""
NOTHING: Final = Growth()


@dataclass(frozen=True)
class UnitCost:
    """Work of one unit per sequence (or sample) as a function of the length."""

    flops: Growth = NOTHING
    moved: Growth = NOTHING
    kept: Mapping[DtypeRole, Growth] = field(default_factory=dict)
    launches: float = 0.0
    matmuls: int = 1
    columns: float = 1.0
    depth: float = 1.0
    """Columns and depth of the products, their geometric means weighted by FLOPs."""
    convolution: bool = False
    width: Growth = NOTHING
    channels: int = 0
    attention: tuple[tuple[AttentionCall, int], ...] = ()
    """Calls over the whole length (their queries and keys are not read) and how often each happens."""
    causal: float | None = None
    """Share of the pairs that are causal, where attention modules say so."""
    failed: str = ""
    exact: bool = True


@dataclass(frozen=True)
class Traced:
    """What the runs of a module said; `reason` where there is nothing to say."""

    calls: tuple[Call, ...] = ()
    units: Mapping[Key, UnitCost] = field(default_factory=dict)
    reason: str = ""
    side: int = 0
    """Above 0: a sample is an image with this side."""
    side_stated: bool = True


def trace_model(prepared: Prepared, config: Any) -> Traced:
    """Costs of a model of the library, for inputs that suit it; the reason where there are none."""
    try:
        return _trace_model(prepared, config)
    except Exception as error:
        # Configs may hold anything that the library did not look at; counts do not depend on inputs.
        return Traced(reason=one_line(error))


def _trace_model(prepared: Prepared, config: Any) -> Traced:
    model = prepared.model
    size = image_size(config)
    if not counts_tokens(model):
        batch = 2  # batch norm refuses one value a channel
        first, reason = _first_that_runs(prepared, config, 1, batch, size.side)
        side = size.side if counts_images(model) else 0
        if first is None:
            return Traced(reason=reason, side=side, side_stated=size.stated)
        return replace(summed([first[0]], scale=1.0), side=side, side_stated=size.stated)
    limit = token_limit(config, FULL_LENGTH)
    start = min(SHORT_LENGTH, limit)
    first, reason = _first_that_runs(prepared, config, start, 1, size.side)
    if first is None:
        return Traced(reason=reason)
    probe, choice, seconds = first
    top = start if seconds > SLOW_RUN_S else limit
    lengths = sorted({max(top * quarter // 4, 1) for quarter in (1, 2, 3, 4)})
    runs = []
    for length in lengths:
        inputs = list(candidates(model, config, length, 1, size.side, _dtype(model)))
        if len(inputs) <= choice:
            continue
        found, reason, _ = timed(lambda i=inputs[choice], n=length: run(prepared, (), i, n, 1))  # type: ignore[misc]
        if found is not None:
            runs.append(found)
    if len(runs) < min(LEAST_RUNS, len(lengths)) or any(each.calls != runs[0].calls for each in runs):
        return replace(summed([probe], scale=float(probe.length)), reason=reason)
    return summed(runs, scale=1.0)


def _first_that_runs(
    prepared: Prepared, config: Any, length: int, batch: int, side: int
) -> tuple[tuple[Run, int, float] | None, str]:
    """The first inputs that the model takes, and which they were; else why the last ones failed."""
    import torch

    reason = ""
    found: Run | None = None
    index = 0
    for dtype in (torch.bfloat16, torch.float32):  # some transforms know fp32 only
        prepared.model.to(dtype)
        for index, named in enumerate(candidates(prepared.model, config, length, batch, side, dtype)):
            found, why, seconds = timed(lambda named=named: run(prepared, (), named, length, batch))  # type: ignore[misc]
            if found is not None and not (dtype is torch.bfloat16 and _failed(found)):
                return (found, index, seconds), ""
            if found is not None:
                break
            reason = reason or why
    if found is not None:
        return (found, index, seconds), ""
    return None, reason or "no example input is known for it"


def _dtype(model: nn.Module) -> Any:
    return next(parameter.dtype for parameter in model.parameters())


def _failed(found: Run) -> bool:
    return any(cost.failed for cost in found.costs.values())


def summed(runs: Sequence[Run], scale: float) -> Traced:
    """Every unit that some run met, as functions of the length."""
    keys = list(dict.fromkeys(key for each in runs for key in each.costs))
    lengths = [each.length for each in runs]
    units = {}
    for key in keys:
        costs = [each.costs.get(key, Cost()) for each in runs]
        units[key] = _unit(lengths, costs) if len(runs) > 1 else _single(costs[0], scale)
    return Traced(runs[0].calls, units)


def _single(cost: Cost, scale: float) -> UnitCost:
    """One run: everything taken to grow with the length (or the image's area)."""

    def grown(value: float) -> Growth:
        return Growth(linear=value / scale)

    extra = _folded(cost.attention)
    return UnitCost(
        flops=grown(cost.flops + extra[0]),
        moved=grown(cost.moved),
        kept={role: grown(value) for role, value in _with_attention(cost.kept, extra[1]).items()},
        launches=float(cost.launches),
        matmuls=max(cost.matmuls, 1),
        columns=_mean(cost, 0),
        depth=_mean(cost, 1),
        convolution=cost.convolution_flops > cost.flops / 2,
        width=grown(cost.width),
        channels=cost.channels,
        failed=cost.failed,
        exact=scale == 1.0,
    )


def _unit(lengths: Sequence[int], costs: Sequence[Cost]) -> UnitCost:
    """Several runs: exact polynomials, whole-length attention as calls."""
    whole, rest = _attention(lengths, costs)
    fits = Fits(lengths)
    last = costs[-1]
    roles = list(dict.fromkeys(role for cost in costs for role in (*cost.kept, DtypeRole.COMPUTE)))
    folded = [_folded(calls) for calls in rest]
    kept = {}
    for role in roles:
        values = [
            cost.kept.get(role, 0.0) + (extra[1] if role is DtypeRole.COMPUTE else 0.0)
            for cost, extra in zip(costs, folded, strict=True)
        ]
        if any(values):
            kept[role] = fits.growth(values)
    return UnitCost(
        flops=fits.growth([cost.flops + extra[0] for cost, extra in zip(costs, folded, strict=True)]),
        moved=fits.growth([cost.moved for cost in costs], essential=False),
        kept=kept,
        launches=float(last.launches),
        matmuls=max(last.matmuls, 1),
        columns=_mean(last, 0),
        depth=_mean(last, 1),
        convolution=last.convolution_flops > last.flops / 2,
        width=fits.growth([cost.width for cost in costs]),
        channels=last.channels,
        attention=whole,
        causal=_causal_share(fits, costs),
        failed=last.failed,
        exact=fits.exact,
    )


def _mean(cost: Cost, which: int) -> float:
    """Geometric mean of a side of the products, as a multiple of 8: a mean says nothing about alignment."""
    if not cost.flops:
        return 1.0
    return 8.0 * max(round(math.exp(cost.log_shape[which] / cost.flops) / 8.0), 1)


def _causal_share(fits: Fits, costs: Sequence[Cost]) -> float | None:
    """Causal part of what grows with the square inside attention modules; None where they say nothing."""
    if not any(cost.attention_flops for cost in costs):
        return None
    every = fits.growth([cost.attention_flops for cost in costs], essential=False).quadratic
    causal = fits.growth([cost.causal_flops for cost in costs], essential=False).quadratic
    return min(max(causal / every, 0.0), 1.0) if every > 0 else None


def _attention(
    lengths: Sequence[int], costs: Sequence[Cost]
) -> tuple[tuple[tuple[AttentionCall, int], ...], list[list[AttentionCall]]]:
    """Calls over the whole length at every length, of one form; and the other calls of each run."""
    forms = []
    for length, cost in zip(lengths, costs, strict=True):
        whole = Counter(
            replace(call, queries=0, keys=0)
            for call in cost.attention
            if call.queries == length and call.keys == length
        )
        forms.append(whole)
    if any(form != forms[0] for form in forms):
        return (), [cost.attention for cost in costs]
    rest = [
        [call for call in cost.attention if not (call.queries == length and call.keys == length)]
        for length, cost in zip(lengths, costs, strict=True)
    ]
    return tuple(forms[0].items()), rest


def _folded(calls: Sequence[AttentionCall]) -> tuple[float, float]:
    """FLOPs and kept elements of attention calls that stay inside the traced work."""
    flops = kept = 0.0
    for call in calls:
        flops += 2.0 * call.heads * call.queries * call.keys * (call.qk_dim + call.v_dim)
        kept += call.heads * call.queries * (call.qk_dim + call.v_dim)
        kept += call.kv_heads * call.keys * (call.qk_dim + call.v_dim)
    return flops, kept


def _with_attention(kept: Mapping[DtypeRole, float], extra: float) -> dict[DtypeRole, float]:
    found = dict(kept)
    if extra:
        found[DtypeRole.COMPUTE] = found.get(DtypeRole.COMPUTE, 0.0) + extra
    return found


def input_table(model: nn.Module) -> nn.Module | None:
    """The module that holds the token table, where the model names one."""
    return _named(model, "get_input_embeddings")


def output_head(model: nn.Module) -> nn.Module | None:
    """The module of the language-model head, where the model names one."""
    return _named(model, "get_output_embeddings")


def _named(model: nn.Module, method: str) -> nn.Module | None:
    get = getattr(model, method, None)
    try:
        found = get() if get else None
    except (NotImplementedError, AttributeError):
        return None
    return found if callable(getattr(found, "forward", None)) else None
