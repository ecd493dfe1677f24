"""Plans on clusters of several device groups equal brute force: placements, cuts and recompute spelt out in words."""

import itertools
import random
from collections.abc import Iterator

import pytest

from cost_models.profiles import cluster_from_spec
from cost_models.readers import read_model
from cost_models.schedule import ScheduleName
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import Strategy
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import Situation, situate
from tests.planner.test_plan_brute_force import (
    agrees,
    all_cuts,
    divisors,
    nearly_even_cuts,
    random_model,
    recomputes,
)

DEVICES = ("a100-sxm-80gb", "h100-sxm-80gb", "a100-sxm-40gb", "h200-sxm", "v100-sxm2-32gb")
SPLIT = ("zb-h1", "zb-v", "dualpipe-v")
STAGES_APART = "tp-cp-ep-dp-pp"


def random_cluster(rng: random.Random) -> dict:
    """Two or three groups of different devices or node sizes, sometimes in zones far apart."""
    groups = []
    for index in range(rng.choice((2, 2, 3))):
        per_node = rng.choice((1, 2, 4))
        group = {
            "name": "abc"[index],
            "device": rng.choice(DEVICES),
            "nodes": rng.choice((1, 2)),
            "devices_per_node": per_node,
        }
        groups.append(group)
    groups[0]["device"] = "h100-sxm-80gb"
    wan = {"name": "ethernet wan", "bytes_per_s": 1e9, "latency_s": rng.choice((1e-4, 3e-2))}
    fabric = {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6}
    tiers = [{"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6}, rng.choice((wan, fabric))]
    return {"name": "several", "groups": groups, "tiers": tiers}


def smaller(spec: dict, rng: random.Random) -> dict:
    """The same cluster with devices of other sizes, so that memory binds."""
    resolved = cluster_from_spec(spec).model_dump()
    for group in resolved["groups"]:
        size = group["device"]["capacity_bytes"]
        size["value"] = rng.choice((2.5e9, 4e9, 8e9, 3e10))
    return resolved


# ---------------------------------------------------------------- the space in words


def placements(of: Situation) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """(whether groups share all ranks, groups in order): every set together, every ordered choice of two or more."""
    names = [
        name
        for index, name in enumerate(of.cluster.group_names)
        if of.cluster.device_of(index).supports(of.job.precision.value)
    ]
    for size in range(1, len(names) + 1):
        yield from ((True, chosen) for chosen in itertools.combinations(names, size))
    for size in range(2, len(names) + 1):
        yield from ((False, chosen) for chosen in itertools.permutations(names, size))


def declared(blocks: int, pools: list[list[int]]) -> Iterator[tuple[int, ...]]:
    """Cuts of q and q + 1 blocks a stage in each pool, the longer ones first or last, 0 to 2 fewer on the edges."""
    count = sum(len(stages) for stages in pools)
    for cut in all_cuts(blocks, count):
        for first, last in itertools.product(range(3), repeat=2):
            full = list(cut)
            full[0] += first
            full[-1] += last
            sizes = [[full[stage] for stage in stages] for stages in pools]
            if all(max(own) - min(own) <= 1 and own in (sorted(own), sorted(own)[::-1]) for own in sizes):
                yield cut
                break


def cuts(of: Situation, mesh: dict, groups: tuple[str, ...]) -> set[tuple[int, ...]]:
    """Cuts of the declared space."""
    count, blocks = mesh["pp"] * mesh["vpp"], of.model.num_blocks
    if mesh["vpp"] == 1 and mesh["schedule"] in ("1f1b", "gpipe"):
        return all_cuts(blocks, count)
    pools = [[g for g in range(count) if groups[g % mesh["pp"]] == text] for text in dict.fromkeys(groups)]
    return set(declared(blocks, pools)) if len(pools) > 1 else nearly_even_cuts(blocks, count)


def meshes(of: Situation, pins: dict) -> Iterator[tuple[dict, tuple[str, ...]]]:
    """Every mesh with the groups of its ranks, legal or not."""
    sizes = dict(zip(of.cluster.group_names, (group.num_devices for group in of.cluster.groups), strict=True))
    for together, names in placements(of):
        devices = sum(sizes[name] for name in names)
        for pp in divisors(devices):
            dp, left = divmod(devices, pins["tp"] * pp)
            ranks = pins["tp"] * dp
            if left or dp == 0 or (not together and any(sizes[name] % ranks for name in names)):
                continue
            apart = tuple(name for name in names for _ in range(sizes[name] // ranks))
            groups = ("/".join(names),) * pp if together else apart
            pipes = [("1f1b", 1), ("gpipe", 1), *(("interleaved", v) for v in range(2, 9))]
            for schedule, vpp in pipes if len(groups) == pp else ():
                yield {"pp": pp, "dp": dp, "vpp": vpp, "schedule": schedule}, groups


def strategies(of: Situation, pins: dict, words: dict[str, list[str]]) -> Iterator[Strategy]:
    """The whole space; several orders of axes are declared where all ranks share one pool."""
    for mesh, groups in meshes(of, pins):
        if mesh["schedule"] not in words["schedule"] or not _is_asked(groups, pins):
            continue
        whole = mesh["vpp"] == 1
        for cut in sorted(cuts(of, mesh, groups)):
            for recompute in recomputes(cut, words["recompute"], every_cut=whole):
                for order in words["order"] if len(set(groups)) == 1 else [STAGES_APART]:
                    yield Strategy(
                        **(mesh | {"schedule": ScheduleName(mesh["schedule"])}),
                        **{name: pins[name] for name in ("tp", "zero", "mbs", "sp")},
                        cp=1,
                        ep=1,
                        etp=1,
                        dp_shard=mesh["dp"],
                        dp_replicate=1,
                        recompute=recompute,
                        stages=cut,
                        order=tuple(order.split("-")),
                        stage_groups=groups,
                    )


def _is_asked(groups: tuple[str, ...], pins: dict) -> bool:
    return "groups" not in pins or "+".join(dict.fromkeys(groups)) == pins["groups"]


# ---------------------------------------------------------------- agreement


def random_question(rng: random.Random) -> tuple[Situation, dict]:
    """A small request on several groups, pinned to one row of degrees."""
    model = read_model(random_model(rng))
    spec = random_cluster(rng)
    cluster = cluster_from_spec(smaller(spec, rng) if rng.random() < 0.7 else spec)
    if not cluster.is_mixed:
        return random_question(rng)
    engine = rng.choice(("megatron", "megatron", "torch"))
    job = JobRequest(
        seq_len=rng.choice((512, 2048)), global_batch=rng.choice((4, 8, 16)), precision="fp16", engine=engine
    )
    pins = {"tp": rng.choice((1, 1, 2)), "zero": 1, "mbs": rng.choice((1, 1, 2))}
    pins["sp"] = pins["tp"] > 1 and rng.random() < 0.5
    of = situate(model, cluster, job)
    texts = [("/" if together else "+").join(names) for together, names in placements(of)]
    if rng.random() < 0.6:
        pins["groups"] = rng.choice([text for text in texts if text not in "abc"] or texts)
    return of, pins


def check(seed: int) -> str:
    """Compare with brute force; how the plan lies on the groups."""
    rng = random.Random(seed)
    of, pins = random_question(rng)
    gap = rng.choice((1e-3, 1e-6, 0.0))
    fixed = pins | {"cp": 1, "ep": 1, "etp": 1, "dp_replicate": 1, "offload": "none"}
    bans = () if of.engine.name == "megatron" else tuple(f"schedule={name}" for name in SPLIT)
    found = make_plan(
        of, SearchRequest(pins=fixed, bans=bans, gap=gap, seed=seed, explain=False, max_seconds=3600.0)
    )
    words = {key: list(found.certificate.space.get(key, ())) for key in ("schedule", "order", "recompute")}
    outcomes = evaluate_many(of, list(strategies(of, pins, words)))
    steps = [p.step_s for p in outcomes if isinstance(p, Prediction) and p.verdict == "fits"]
    if not steps:
        assert (found.status, found.best) == ("infeasible", None), seed
        return found.status
    agrees(found, min(steps), gap)
    groups = found.best.strategy.stage_groups
    return "several" if len(set(groups)) > 1 else "shared" if "/" in groups[0] else "one"


@pytest.mark.parametrize("seed", [4, 8, 12, 14, 22, 25, 37, 39])
def test_plans_equal_brute_force(seed):
    assert check(seed) in ("infeasible", "one", "several", "shared")


@pytest.mark.matrix
@pytest.mark.parametrize("first", range(100, 400, 20))
def test_more_plans_equal_brute_force(first):
    kinds = [check(seed) for seed in range(first, first + 20)]
    assert {"several", "one"} <= set(kinds)
