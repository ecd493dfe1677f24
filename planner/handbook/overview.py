"""One model on eight GPUs in every way of splitting: what each holds, sends and takes, and the formulas for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cost_models.operators.attention import Attention
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB, format_seconds
from planner.handbook.cases import EIGHT, EIGHT_EXPERTS, EIGHT_SHARDED, Case, fullest
from planner.handbook.markdown import markdown_table
from planner.report.views import view_of

STATES: Final = ("weights", "gradients", "optimizer")
HALF: Final = 2
"""Bytes of a 16-bit number."""
FULL: Final = 4
"""Bytes of a 32-bit number, in which gradients are summed."""


@dataclass(frozen=True, slots=True)
class Split:
    """One way: its strategy, the axis that sends, and what a rank sends a step, in words and in bytes."""

    title: str
    case: Case
    words: str
    axis: str
    formula: str
    sends: Callable[["Sizes"], float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the formulas speak of: parameters, layers, width, width of keys and values, tokens, micro-batches, ranks."""

    parameters: int
    layers: int
    hidden: int
    keys: int
    tokens: int
    micro: int
    ranks: int

    @property
    def ring(self) -> float:
        """Share of a whole that a ring passes on: (n - 1) / n."""
        return (self.ranks - 1) / self.ranks


SPLITS: Final = (
    Split("data parallel", EIGHT, "zero=0", "dp", "2 r x 4 W", lambda s: 2 * s.ring * FULL * s.parameters),
    Split("ZeRO-1", EIGHT, "zero=1", "dp", "r x (4 + 2) W", lambda s: s.ring * (FULL + HALF) * s.parameters),
    Split(
        "ZeRO-3",
        EIGHT_SHARDED,
        "zero=3",
        "dp",
        "m r x (2 + 2 + 4) W",
        lambda s: s.micro * s.ring * (2 * HALF + FULL) * s.parameters,
    ),
    Split("pipeline", EIGHT, "pp=8", "pp", "2 x 2 T h", lambda s: 2 * HALF * s.tokens * s.hidden),
    Split(
        "tensor",
        EIGHT,
        "tp=8,sp=false,mbs=4",
        "tp",
        "4 L x 2 r x 2 T h",
        lambda s: 4 * s.layers * 2 * s.ring * HALF * s.tokens * s.hidden,
    ),
    Split(
        "context, ring",
        EIGHT,
        "cp=8,mbs=4",
        "cp",
        "3 L x r x 2 T k",
        lambda s: 3 * s.layers * s.ring * HALF * s.tokens * s.keys,
    ),
    Split(
        "context, Ulysses",
        EIGHT,
        "cp=8,cp_kind=ulysses,mbs=4",
        "cp",
        "2 L x r x 2 T (2 h + k) / n",
        lambda s: 2 * s.layers * s.ring * HALF * s.tokens * (2 * s.hidden + s.keys) / s.ranks,
    ),
)


def sizes_of(split: Split) -> Sizes:
    """The sizes of a way's model and job."""
    found = split.case.predict(split.words)
    model, strategy = split.case.situation().model, found.strategy
    attention = next(op for op in model.kinds["dense"].operators if isinstance(op, Attention))
    return Sizes(
        parameters=found.parameters,
        layers=model.num_layers,
        hidden=attention.heads * attention.qk_dim,
        keys=2 * attention.kv_heads * attention.qk_dim,
        tokens=(split.case.seq_len or 1) * split.case.global_batch // strategy.dp,
        micro=strategy.num_micro_batches(split.case.global_batch),
        ranks=8,
    )


def sent_of(split: Split) -> float:
    """Bytes that the busiest rank sends on the way's axis in a step, summed from the messages that are priced."""
    view = view_of(split.case.situation(), parse_strategy(split.words), 1)
    axes: list[dict[str, Any]] = view["grid"]["axes"]
    sent: list[float] = next(axis["sent_bytes"] for axis in axes if axis["axis"] == split.axis)
    return max(sent)


def every_way() -> str:
    """The same job in every way, one at a time, then as the planner would."""
    rows = []
    for split in SPLITS:
        rows.append([split.title, f"`{split.words}`", *_held(split.case, split.words)])
    rows.append(["experts (Mixtral 8x7B)", "`ep=8`", *_held(EIGHT_EXPERTS, "ep=8")])
    head = ["way", "strategy", "states", "activations", "peak", "fits", "step", "MFU"]
    return markdown_table(head, rows)


def traffic() -> str:
    """What a GPU sends in a step: by a formula of one line, and as the planner counts every message."""
    rows = []
    for split in SPLITS:
        by_hand, counted = split.sends(sizes_of(split)), sent_of(split)
        shown = format_seconds(counted / 450e9)
        rows.append(
            [split.title, f"`{split.formula}`", f"{by_hand / 1e9:,.1f} GB", f"{counted / 1e9:,.1f} GB", shown]
        )
    head = ["way", "a rank sends", "by the formula", "as priced", "at 450 GB/s"]
    return markdown_table(head, rows)


def _held(case: Case, words: str) -> list[str]:
    found = case.predict(words)
    causes = fullest(found).by_cause
    states = sum(causes.get(cause, 0.0) for cause in STATES)
    return [
        f"{states / GIB:.1f}",
        f"{causes.get('activations', 0.0) / GIB:.1f}",
        f"{found.memory.peak_allocated_bytes / GIB:.1f}",
        "yes" if found.verdict == "fits" else "no" if found.verdict == "does_not_fit" else "at risk",
        format_seconds(found.step_s),
        f"{found.mfu:.1%}",
    ]
