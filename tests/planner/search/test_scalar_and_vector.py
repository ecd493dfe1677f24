"""One number per strategy: alone, in bulk, among other cuts of its mesh, and walked operation by operation."""

import random
from collections import Counter

import numpy as np
import pytest

from cost_models.profiles import cluster_from_spec
from cost_models.specs.strategy import Strategy
from planner.evaluation import Context, evaluate, evaluate_many
from planner.request import CatalogModel
from planner.search.bulk import outcomes
from planner.search.problem import price_many
from planner.situation import JobRequest, Situation, resolve_model, situate
from planner.verify import simulated_step_s, walked_bytes
from tests.planner.search.drawn import cuts_of, drawn

EQUAL = 1e-9
MODELS = (
    "llama-3.1-8b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gemma-2-2b",
    "nemotron-h-8b",
    "t5-3b",
    "qwen3-30b-a3b",
)
ENGINES = ("megatron", "torch", "torchtitan", "deepspeed", "fsdp1", "fsdp2", "ddp", "parameter_server")
PLAIN = ("fsdp1", "fsdp2", "ddp", "parameter_server")
PRECISIONS = {"h100-sxm-80gb": ("bf16", "fp16", "fp8", "fp32"), "b200": ("bf16", "mxfp8", "nvfp4", "tf32")}
OPTIONS = (
    {},
    {"engine.grad_dtype": "bf16"},
    {"engine.fused_cross_entropy": True, "job.moe_imbalance": 1.3},
    {"job.trainable": "lora:r=16"},
    {"engine.attention": "unfused"},
)


def random_question(rng: random.Random, engine: str, *, mixed: bool) -> Situation | None:
    """A model on 4 to 64 devices of one kind, or of two or three; None where the engine refuses the job."""
    device = rng.choice(sorted(PRECISIONS))
    kinds = (device, "a100-sxm-80gb", "h200-sxm")[: rng.choice((2, 3)) if mixed else 1]
    groups = [
        {
            "name": "abc"[place],
            "device": kind,
            "nodes": rng.choice((1, 2, 4)),
            "devices_per_node": rng.choice((4, 8)),
        }
        for place, kind in enumerate(kinds)
    ]
    tiers = [
        {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6},
    ]
    job = {
        "seq_len": rng.choice((512, 2048, 4096)),
        "global_batch": rng.choice((96, 256, 384)),
        "engine": engine,
        "precision": rng.choice(("bf16", "fp16")) if mixed else rng.choice(PRECISIONS[device]),
        "options": rng.choice(OPTIONS),
        "optimizer": rng.choice(("adamw", "adamw", "sgd", "muon")),
    }
    cluster = cluster_from_spec({"name": "drawn", "groups": groups, "tiers": tiers})
    try:
        return situate(resolve_model(CatalogModel(name=rng.choice(MODELS))), cluster, JobRequest(**job))
    except ValueError:
        return None


def check(of: Situation, strategies: list[Strategy], rng: random.Random) -> None:
    """Every way to price a strategy, against it alone."""
    context = Context.of(of)
    together = evaluate_many(of, strategies)
    bulk = None if of.cluster.is_mixed else outcomes(context.pricer, strategies)
    for place, strategy in enumerate(strategies):
        alone = evaluate(of, strategy)
        step_s, said = alone.step_s, strategy.text()
        assert together[place].step_s == pytest.approx(step_s, rel=EQUAL), said
        peak_bytes = pytest.approx(alone.memory.peak_allocated_bytes, rel=EQUAL)
        assert together[place].memory.peak_allocated_bytes == peak_bytes, said
        assert simulated_step_s(context, strategy) == pytest.approx(step_s, rel=EQUAL), said
        stated = [stage.allocated_bytes for stage in alone.memory.stages]
        assert walked_bytes(context, strategy) == pytest.approx(stated, rel=EQUAL), said
        if bulk is not None:
            assert bulk.step_s[place] == pytest.approx(step_s, rel=EQUAL), said
            assert bulk.fits[place] == (alone.verdict == "fits"), said
        if place % 8 == 0:
            check_cuts(of, context, strategy, rng)


def check_cuts(of: Situation, context: Context, strategy: Strategy, rng: random.Random) -> None:
    """Many cuts of one mesh at once, as the search prices them."""
    cuts = [other for other in cuts_of(strategy, rng, 6) if not of.engine.violations(of.facts, other)]
    if not cuts or strategy.recompute.full == -1:
        return
    mesh = context.mesh_of(strategy)
    stages, full = ([each(s) for s in cuts] for each in (lambda s: s.stages, Strategy.full_layers))
    prices = price_many(mesh, np.asarray(stages), np.asarray(full))
    for place, other in enumerate(cuts):
        alone = evaluate(of, other)
        assert prices.step_s[place] == pytest.approx(alone.step_s, rel=EQUAL), other.text()
        assert prices.fits[place] == (alone.verdict == "fits"), other.text()


def run(seed: int, engines: tuple[str, ...], each: int, most: int) -> Counter[str]:
    """Random questions under each engine until `each` strategies of it are checked; what they were made of."""
    rng, met = random.Random(seed), Counter()
    for engine in engines:
        left, tries = each, 0
        while left > 0 and tries < 60:
            tries += 1
            mixed = engine not in PLAIN and rng.random() < 0.35
            of = random_question(rng, engine, mixed=mixed)
            strategies = drawn(of, rng, min(left, most)) if of is not None else []
            if not strategies:
                continue
            check(of, strategies, rng)
            left -= len(strategies)
            for s in strategies:
                words = (
                    "mixed" if mixed else "alike",
                    engine,
                    s.schedule.value,
                    f"zero {s.zero}",
                    of.job.precision.value,
                )
                kind = "full" if s.recompute.full else "selective" if s.recompute.scopes else "none"
                met.update([*words, f"recompute {kind}", *(["offload"] if s.offload != "none" else [])])
                met.update([*(["act_offload"] if s.act_offload != "none" else []), "strategies"])
    return met


def test_a_strategy_has_one_price():
    assert run(1, ("megatron", "torch", "deepspeed"), each=4, most=2)["strategies"] >= 12


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ENGINES)
def test_two_thousand_strategies_have_one_price(engine, record_property):
    met = run(2, (engine,), each=270, most=30)
    record_property("strategies", ", ".join(f"{word} {number}" for word, number in sorted(met.items())))
    assert met["strategies"] >= 250
