"""Random legal plans that divide experts or positions run, and train as one process does."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from cost_models.errors import BadInput
from planner.executor.refuse import run_violations
from planner.executor.request import RunOrder
from tests.planner.executor.equality import OPTIONS, compare
from tests.planner.executor.orders import DEEPSEEK, LLAMA, MIXTRAL, tiny_order
from tests.planner.executor.test_experts import BALANCED, PREDICTING

MOST = 8
DENSE: Mapping[str, object] = {**LLAMA, "tie_word_embeddings": True, "num_hidden_layers": 4}
ROUTED = (
    {**MIXTRAL, "num_hidden_layers": 4},
    {**DEEPSEEK, "num_hidden_layers": 4},
    {**PREDICTING, "num_hidden_layers": 4, "num_nextn_predict_layers": 1},
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v")
TWO_CHUNKS = ("interleaved", "zb-v", "dualpipe-v")


def random_order(seed: int) -> tuple[RunOrder, int]:
    """A legal order on at most eight processes; illegal draws are drawn again."""
    draw = random.Random(seed)
    while True:
        tp, cp, pp, dp = (draw.choice((1, 1, 2, 2, 4)) for _ in range(4))
        world = tp * cp * pp * dp
        routed = draw.random() < 0.7
        if not 1 < world <= MOST or (cp == 1 and not routed):
            continue
        config = draw.choice(ROUTED) if routed else DENSE
        text = strategy_text(draw, {"tp": tp, "cp": cp, "pp": pp, "dp": dp}, routed)
        job = {"seq_len": 16, "global_batch": 8, "options": job_options(draw, config)}
        options = BALANCED if routed and draw.random() < 0.5 else {}
        try:
            order = tiny_order(text, devices=world, config=config, job=job, **{**OPTIONS, **options})
        except BadInput:
            continue
        if not run_violations(order, 0):
            return order, world


def job_options(draw: random.Random, config: Mapping[str, object]) -> dict[str, Any]:
    """A capacity, and prediction layers where the model has some."""
    found: dict[str, Any] = {}
    if config is not DENSE and draw.random() < 0.5:
        found["job.moe_capacity_factor"] = draw.choice((0.75, 1.0, 1.5))
    if config.get("num_nextn_predict_layers"):
        found["job.train_mtp"] = True
    return found


def strategy_text(draw: random.Random, degrees: Mapping[str, int], routed: bool) -> str:
    """Knobs at random."""
    parts = [f"{axis}={degree}" for axis, degree in degrees.items()]
    parts += [f"zero={draw.randrange(4)}", f"mbs={draw.choice((1, 2))}"]
    parts.append(f"cp_kind={draw.choice(('ring', 'allgather', 'ulysses'))}")
    if routed:
        parts += [f"ep={draw.choice((1, 2, 4))}", f"etp={draw.choice((1, 1, 2))}"]
    if degrees["tp"] > 1 and draw.random() < 0.4:
        parts.append("sp=false")
    if degrees["dp"] > 2 and draw.random() < 0.5:
        parts += ["dp_shard=2", "dp_replicate=2"]
    if degrees["pp"] > 1:
        schedule = draw.choice(SCHEDULES)
        parts += [f"schedule={schedule}", f"vpp={2 if schedule in TWO_CHUNKS else 1}"]
    scopes = ("none", "full", "full:1", "selective:moe+layernorm" if routed else "selective:mlp")
    parts.append(f"recompute={draw.choice(scopes)}")
    draw.shuffle(parts)
    return ",".join(parts)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(40))
def test_a_random_divided_plan_equals_one_process(seed: int) -> None:
    order, world = random_order(seed)
    found = compare(order, world)
    assert found.within_limits(), (order.strategy.text(), order.situation.job_request.options, found)
