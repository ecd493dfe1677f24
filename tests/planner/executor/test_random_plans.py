"""Random legal plans of small models run, and train as one process does."""

import random

import pytest

from cost_models.errors import BadInput
from planner.executor.refuse import run_violations
from planner.executor.request import RunOrder
from tests.planner.executor.equality import JOB, OPTIONS, compare
from tests.planner.executor.orders import LLAMA, tiny_order

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 48,
    "n_layer": 5,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": 120,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
}
CONFIGS = (
    {**LLAMA, "num_hidden_layers": 5},
    {**LLAMA, "tie_word_embeddings": True, "num_hidden_layers": 4},
    GPT2,
)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v")
TWO_CHUNKS = ("interleaved", "zb-v", "dualpipe-v")


def random_order(seed: int, most: int) -> tuple[RunOrder, int]:
    """A legal order on at most so many processes; illegal draws are drawn again."""
    draw = random.Random(seed)
    while True:
        tp, pp, dp = (draw.choice((1, 1, 2, 2, 4)) for _ in range(3))
        if not 1 < tp * pp * dp <= most:
            continue
        config = draw.choice(CONFIGS)
        job = {"optimizer": draw.choice(("adamw", "adamw", "sgd"))}
        try:
            order = tiny_order(
                strategy_text(draw, tp, pp, dp),
                devices=tp * pp * dp,
                config=config,
                job={**JOB, **job},
                **OPTIONS,
            )
        except BadInput:
            continue
        if not run_violations(order, 0):
            return order, tp * pp * dp


def strategy_text(draw: random.Random, tp: int, pp: int, dp: int) -> str:
    """Knobs at random, stages cut at random places."""
    parts = [f"tp={tp}", f"pp={pp}", f"dp={dp}", f"zero={draw.randrange(4)}", f"mbs={draw.choice((1, 2))}"]
    if tp > 1 and draw.random() < 0.5:
        parts.append("sp=false")
    if dp > 2 and draw.random() < 0.5:
        parts += ["dp_shard=2", f"dp_replicate={dp // 2}"]
    stages = pp
    if pp > 1:
        schedule = draw.choice(SCHEDULES)
        stages = 2 * pp if schedule in TWO_CHUNKS else pp
        parts += [f"schedule={schedule}", f"vpp={stages // pp}"]
        blocks = draw.choice((4, 5))
        cuts = sorted(draw.sample(range(1, blocks), min(stages, blocks) - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, blocks], strict=True)]
        parts.append("stages=" + "+".join(map(str, sizes)))
    parts.append("recompute=" + draw.choice(("none", "full", "full:1", "selective:mlp")))
    draw.shuffle(parts)
    return ",".join(parts)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(2, 40))]
)
def test_a_random_plan_equals_one_process(seed: int) -> None:
    order, world = random_order(seed, most=4 if seed < 2 else 8)
    found = compare(order, world)
    assert found.within_limits(), (order.strategy.text(), found)
