"""Layouts that divide experts and positions, to be held against one process."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from cost_models.errors import BadInput
from planner.executor.refuse import run_violations
from planner.executor.request import RunOrder
from tests.planner.executor.equality import MAX_WORLD, Layout
from tests.planner.executor.orders import DEEPSEEK, LLAMA

DENSE: Final[Mapping[str, object]] = {**LLAMA, "num_key_value_heads": 4, "num_hidden_layers": 3}
ROUTED: Final[Mapping[str, object]] = {**DEEPSEEK, "num_hidden_layers": 3}
CONTEXTS: Final = ("1", "2 ring", "2 allgather", "2 ulysses")
# Dropless; or cut at the capacity, with an auxiliary loss by sequence and a moving correction.
DROPLESS: Final[Mapping[str, Any]] = {"global_batch": 8}
CUT: Final[Mapping[str, Any]] = {"global_batch": 8, "options": {"job.moe_capacity_factor": 1.25}}
BALANCED: Final[Mapping[str, Any]] = {
    "moe_aux_loss": 0.1,
    "moe_aux_scope": "sequence",
    "moe_bias_rate": 0.01,
}


def all_layouts() -> Iterator[Layout]:
    """Dense and routed x ep 1, 2, 4 x cp 1, 2 of three kinds x pp 1, 2 x ZeRO 1, 3 x tp 1, 2, where legal on up to
    eight processes; the data-parallel degree is the first that goes round."""
    axes = product((1, 2, 4), CONTEXTS, (1, 2), (1, 3), (1, 2))
    for ep, context, pp, zero, tp in axes:
        for routed in (False, True):
            if not routed and ep > 1:
                continue
            layout = layout_of(routed, ep, context, f"pp={pp},zero={zero},tp={tp}")
            if layout is not None:
                yield layout
    yield from more_layouts()


def layout_of(routed: bool, ep: int, context: str, rest: str) -> Layout | None:
    """One cell; None where no data-parallel degree makes it legal."""
    degree, _, kind = context.partition(" ")
    axes = dict(pair.split("=") for pair in rest.split(","))
    inner = int(axes["tp"]) * int(degree)
    for dp in (2, 1, 4):
        world = inner * dp * int(axes["pp"])
        if world > MAX_WORLD or world == 1 or (inner * dp) % ep:
            continue
        stages = ",stages=2+1" if axes["pp"] == "2" else ""
        cp = f",cp={degree},cp_kind={kind}" if kind else ""
        text = f"dp={dp},ep={ep},mbs=2,{rest}{cp}{stages}"
        config = ROUTED if routed else DENSE
        job = CUT if routed and axes["zero"] == "3" else DROPLESS
        name = f"{'routed' if routed else 'dense'} ep {ep} cp {context}"
        layout = Layout(name, text, world, config=config, job=job, options=BALANCED if job is CUT else {})
        if is_run(layout):
            return layout
    return None


def more_layouts() -> Iterator[Layout]:
    """Expert tensor parallel, hybrid sharding, prediction layers, other schedules, all positions on every rank."""
    predicting, deeper = {**ROUTED, "num_nextn_predict_layers": 2}, {**ROUTED, "num_hidden_layers": 4}
    trained = {"global_batch": 8, "options": {"job.train_mtp": True}}
    texts: tuple[tuple[str, str, int, Mapping[str, object], Mapping[str, Any]], ...] = (
        ("etp", "tp=2,etp=2,dp=2,ep=2,zero=1,mbs=2", 4, ROUTED, CUT),
        ("etp", "dp=4,etp=4,zero=3,mbs=2", 4, ROUTED, CUT),
        (
            "etp, positions whole",
            "tp=2,etp=2,ep=2,dp=2,pp=2,sp=false,zero=3,mbs=2,stages=2+1",
            8,
            ROUTED,
            CUT,
        ),
        ("hybrid sharding", "dp=4,dp_shard=2,dp_replicate=2,ep=2,zero=3,mbs=2", 4, ROUTED, DROPLESS),
        ("hybrid sharding", "dp=4,dp_shard=2,dp_replicate=2,cp=2,zero=3,mbs=1", 8, ROUTED, CUT),
        ("cp 4 ring", "cp=4,dp=2,ep=8,zero=3,mbs=2", 8, ROUTED, CUT),
        ("cp 4 allgather", "cp=4,tp=2,ep=8,zero=1,mbs=2,cp_kind=allgather", 8, ROUTED, CUT),
        ("recomputed", "cp=2,dp=2,ep=4,pp=2,zero=3,mbs=2,recompute=full,stages=2+1", 8, ROUTED, CUT),
        ("recomputed", "dp=2,tp=2,ep=4,mbs=2,recompute=selective:moe+mla_up_proj", 4, ROUTED, CUT),
        ("zb-v", "pp=2,vpp=2,cp=2,dp=2,ep=4,zero=3,schedule=zb-v,mbs=1,stages=1+1+1+1", 8, deeper, DROPLESS),
        (
            "interleaved",
            "pp=2,vpp=2,dp=2,tp=2,ep=2,schedule=interleaved,mbs=1,stages=1+1+1+1",
            8,
            deeper,
            CUT,
        ),
        ("predictions", "tp=2,dp=2,ep=2,pp=2,zero=1,mbs=2,stages=2+1", 8, predicting, trained),
        ("predictions", "cp=2,dp=2,ep=4,pp=2,zero=3,mbs=2,stages=2+1", 8, predicting, trained),
        (
            "predictions, zb-h1",
            "tp=2,pp=2,ep=2,zero=1,mbs=1,schedule=zb-h1,stages=2+1",
            4,
            predicting,
            trained,
        ),
    )
    for name, text, world, config, job in texts:
        layout = Layout(name, text, world, config=config, job=job, options=BALANCED if job is CUT else {})
        if is_run(layout):
            yield layout


def is_run(layout: Layout) -> bool:
    """Whether a layout is legal and not refused."""
    try:
        order: RunOrder = layout.order()
    except BadInput:
        return False
    return not run_violations(order, 0)
