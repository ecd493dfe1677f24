"""Plans equal brute force where a request asks for more: shares on the host, options that vary, long sequences.

Stages without blocks are outside the declared space; small steps reach them from its best plans.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from cost_models.profiles import load_preset
from cost_models.readers import read_model
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import Strategy
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import Situation, changed, situate
from tests.planner.test_plan_brute_force import (
    AXES,
    ENGINES,
    agrees,
    all_cuts,
    axis_values,
    legal_mesh,
    random_model,
    strategies,
    with_capacity,
    words_of,
)

SHARES = ("optimizer:0.25", "optimizer:0.5", "optimizer:0.75")
VARIED = (
    {"grad_dtype": "bf16,fp32"},
    {"moment_dtype": "fp32,bf16", "grad_dtype": "bf16"},
    {"precision": "bf16,fp16"},
)
MOST = 120
"""Strategies of a space; more axes are pinned until it has no more."""


def question(rng: random.Random, **job: object) -> Situation:
    """A small model on up to eight devices."""
    asked = {
        "seq_len": rng.choice((512, 2048)),
        "global_batch": rng.choice((4, 8, 12)),
        "engine": rng.choice(ENGINES),
    }
    cluster = load_preset("dgx-h100", rng.choice((2, 4, 4, 8)))
    return situate(read_model(random_model(rng)), cluster, JobRequest(**asked | job))


def shared(of: Situation, pins: dict, words: list[str]) -> Iterable[Strategy]:
    """The space, and where all may rest on the host every share of an optimizer that may."""
    anything = pins.get("offload") == "allowed"
    named = {key: value for key, value in pins.items() if not anything or key != "offload"}
    for strategy in strategies(of, ({"act_offload": "allowed"} if anything else {}) | named, words):
        yield strategy
        if anything and strategy.offload == "optimizer":
            yield from (replace(strategy, offload=share) for share in SHARES)


def pinned(
    of: Situation, rng: random.Random, pins: dict, free: tuple[str, ...]
) -> tuple[dict, list[Strategy]]:
    """Pins on a legal mesh, all axes but the free ones in a random order, until the space is small; its strategies."""
    anchor, words = legal_mesh(of, rng), words_of(of, {})
    rest = [axis for axis in AXES if axis not in pins and axis not in free]
    rng.shuffle(rest)
    while True:
        space = []
        for strategy in shared(of, pins, words):
            space.append(strategy)
            if len(space) > MOST:
                break
        if len(space) <= MOST or not rest:
            return pins, space
        axis = rest.pop()
        pins = pins | {axis: anchor[axis]}
        if not rest:
            pins, words = pins | {"recompute": "none"}, ["none"]


def tight(of: Situation, space: list[Strategy], rng: random.Random) -> Situation:
    """Devices of which some layouts of the space are too large, most of the time."""
    sample = evaluate_many(of, rng.sample(space, min(8, len(space))))
    used = [p.memory.device_used_bytes for p in sample if isinstance(p, Prediction)]
    return (
        with_capacity(of, rng.choice(used) * rng.choice((0.9, 1.02, 1.1)))
        if used and rng.random() < 0.8
        else of
    )


def brute_s(of: Situation, space: Iterable[Strategy]) -> float:
    """The least step of what fits, infinite where nothing does."""
    found = evaluate_many(of, list(space))
    return min(
        (p.step_s for p in found if isinstance(p, Prediction) and p.verdict == "fits"), default=float("inf")
    )


def compare(of: Situation, search: SearchRequest, least_s: float) -> str:
    """The plan against brute force; its status."""
    found = make_plan(of, search)
    if least_s == float("inf"):
        assert (found.status, found.best) == ("infeasible", None)
    else:
        agrees(found, least_s, search.gap)
    return found.status


def on_host(seed: int) -> str:
    """Shares of the optimizer and activations on the host."""
    rng = random.Random(seed)
    of = question(rng, engine=rng.choice(("megatron", "torch", "fsdp2", "deepspeed", "fsdp1", "torchtitan")))
    pins, space = pinned(of, rng, {"offload": "allowed"}, ())
    of = tight(of, space, rng)
    search = SearchRequest(pins=pins, gap=rng.choice((1e-3, 1e-6)), explain=False, max_seconds=3600.0)
    return compare(of, search, brute_s(of, space))


def varied(seed: int) -> str:
    """Every combination of the options has a space of its own."""
    rng = random.Random(seed)
    of = question(rng, engine=rng.choice(("megatron", "torch", "fsdp2")))
    pins, space = pinned(of, rng, {}, ())
    of, vary = tight(of, space, rng), rng.choice(VARIED)
    least_s = float("inf")
    combined = [{}]
    for key, values in vary.items():
        combined = [one | {key: value} for one in combined for value in values.split(",")]
    for one in combined:
        changes = {"precision": one["precision"]} if "precision" in one else {}
        changes |= {"options": {f"engine.{key}": value for key, value in one.items() if key != "precision"}}
        least_s = min(least_s, brute_s(changed(of, changes), space))
    return compare(
        of, SearchRequest(pins=pins, vary=vary, gap=1e-6, explain=False, max_seconds=3600.0), least_s
    )


def long_sequences(seed: int) -> str:
    """Context parallelism of every kind."""
    rng = random.Random(seed)
    engine = rng.choice(("megatron", "torch", "deepspeed", "torchtitan", "fsdp2"))
    of = question(rng, engine=engine, seq_len=rng.choice((4096, 8192)), global_batch=rng.choice((2, 4)))
    degrees = [cp for cp in axis_values(of)["cp"] if cp > 1]
    pins, space = pinned(of, rng, {"cp": rng.choice(degrees)} if degrees else {}, ("cp_kind", "order"))
    of = tight(of, space, rng)
    return compare(
        of, SearchRequest(pins=pins, gap=1e-6, explain=False, max_seconds=3600.0), brute_s(of, space)
    )


def lone_ends(seed: int) -> str:
    """Vocabularies that weigh more than blocks: next to nothing with an empty end is faster either."""
    rng = random.Random(seed)
    engine, spec = rng.choice(("megatron", "torchtitan")), random_model(rng)
    spec |= {"vocab_size": rng.choice((128_000, 256_000)), "hidden_size": 512, "tied_embeddings": False}
    job = JobRequest(seq_len=512, global_batch=rng.choice((8, 16)), engine=engine)
    of = situate(read_model(spec), load_preset("dgx-h100", 4), job)
    pins, space = pinned(of, rng, {"pp": rng.choice((2, 4)), "mbs": 1}, ())
    of = tight(of, space, rng)
    search = SearchRequest(pins=pins, gap=1e-6, explain=False, max_seconds=3600.0)
    status = compare(of, search, brute_s(of, space))
    if status == "optimal":
        best = make_plan(of, search).best
        assert best is not None
        faster_s = brute_s(of, dict.fromkeys(each for strategy in space for each in emptied(strategy)))
        if faster_s < best.step_s * (1.0 - 1e-6):
            return "missed"
    return status


def emptied(strategy: Strategy) -> Iterable[Strategy]:
    """The same with the first, the last or both virtual stages without blocks, the others in every cut."""
    blocks, count, full = sum(strategy.stages), len(strategy.stages), strategy.recompute.full
    if isinstance(full, tuple):
        return
    for first, last in ((0, 1), (1, 0), (1, 1)):
        for cut in sorted(all_cuts(blocks, count - first - last)) if count > first + last else ():
            yield replace(strategy, stages=(0,) * first + cut + (0,) * last)


KINDS = {"on host": on_host, "varied": varied, "long": long_sequences, "lone ends": lone_ends}


@pytest.mark.parametrize("kind", KINDS)
def test_plans_with_more_axes_equal_brute_force(kind):
    assert KINDS[kind](1) in ("optimal", "infeasible")


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(100, 180, 20))
@pytest.mark.parametrize("kind", KINDS)
def test_more_plans_with_more_axes_equal_brute_force(kind, first, record_property):
    met = Counter(KINDS[kind](seed) for seed in range(first, first + 20))
    record_property("statuses", str(dict(met)))
    assert met["optimal"] > 5
    assert met["missed"] <= 2
