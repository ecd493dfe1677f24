"""The plan equals brute force on random small requests: every strategy of the space in words, evaluated one by one."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cost_models.engines import Facts
from cost_models.profiles import load_preset
from cost_models.readers import read_model
from cost_models.schedule import ScheduleName
from cost_models.specs.job import JobRequest
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.answers import PlanResult, Prediction
from planner.evaluation import evaluate_many
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.restrictions import recompute_kind
from planner.situation import Situation, situate

AXES = (
    *("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "mbs", "sp", "dp_replicate", "schedule"),
    *("cp_kind", "order", "offload", "act_offload"),
)
SPLIT = ("zb-h1", "zb-v", "dualpipe-v")
CHUNKS = {"interleaved": range(2, 9), "zb-v": (2,), "dualpipe-v": (2,)}
"""Chunks per rank of a schedule, where it is not one."""
ROUNDING = 1e-9
CP_KINDS = ["ring", "allgather", "ulysses"]
CP_KINDS_OF = {"deepspeed": ["ulysses"]}
ORDERS = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
OFFLOADS = {
    "megatron": ["none", "optimizer"],
    "ddp": ["none"],
    "parameter_server": ["none"],
    "fsdp1": ["none", "parameters"],
    "torchtitan": ["none", "parameters"],
}


ACT_OFFLOADS = {
    "megatron": ["blocks", "modules"],
    "torch": ["checkpoints", "blocks"],
    "ddp": ["checkpoints", "blocks"],
    "fsdp1": ["checkpoints", "blocks"],
    "fsdp2": ["checkpoints", "blocks"],
    "deepspeed": ["checkpoints"],
}
"""What an engine can move of activations, where act_offload=allowed asks for it."""

ZERO = {
    "megatron": [0, 1],
    "torch": [0, 1, 2, 3],
    "deepspeed": [0, 1, 2, 3],
    "fsdp2": [2, 3],
    "fsdp1": [2, 3],
    "torchtitan": [2, 3],
}
WHOLE_LAYERS = ("deepspeed", "fsdp1")
"""Engines that recompute no scope apart from its layer."""
ENGINES = ("megatron", "megatron", "torch", "torch", "torchtitan", "deepspeed", "fsdp1", "fsdp2", "ddp")


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


DENSE_MODULES = ["attn_proj+core_attn", "attn_proj+core_attn+qkv_linear"]
MOE_MODULES = [
    *("attn_proj+core_attn", "expert_fc1", "expert_fc1+moe_act", "attn_proj+core_attn+expert_fc1"),
    "attn_proj+core_attn+expert_fc1+mlp_norm+moe_act+qkv_linear",
]
"""Modules that Megatron moves together, of models with fused norms before their attention."""


def act_offloads(engine: str, blocks: int, *, is_moe: bool = False) -> list[str]:
    """None, checkpoints, modules, and a quarter, half, three quarters or all blocks, of which Megatron keeps one."""
    found = ["none"]
    for kind in ACT_OFFLOADS.get(engine, []):
        counts = {max(blocks // 4, 1), max(blocks // 2, 1), max(3 * blocks // 4, 1), blocks}
        counts = {min(n, blocks - 1) for n in counts} if engine == "megatron" else counts
        texts = ["blocks" if n == blocks else f"blocks:{n}" for n in sorted(counts - {0})]
        modules = [f"modules:{names}" for names in (MOE_MODULES if is_moe else DENSE_MODULES)]
        found += {"blocks": texts, "modules": modules}.get(kind, [kind])
    return found


# ---------------------------------------------------------------- the space, from the words of the certificate


def least_zero_of_replicas(engine: str) -> int:
    """Megatron replicates the distributed optimizer, the others sharded gradients and parameters."""
    return 1 if engine == "megatron" else 2


def axis_values(of: Situation, *, allowed: bool = False) -> dict[str, list]:
    """Values of every axis: divisors, and what the engine has; all that can be offloaded where that is allowed."""
    devices, blocks, batch = of.cluster.num_devices, of.model.num_blocks, of.job.global_batch
    name = of.engine.name
    whole = name in ("megatron", "torch", "torchtitan", "deepspeed")
    plain = name in ("ddp", "parameter_server", "fsdp1")
    ways = divisors(devices)
    tensor = [1] if plain else ways
    return {
        "tp": tensor,
        "cp": [d for d in tensor if d == 1 or of.job.seq_len // d >= 1024],
        "pp": [d for d in ways if d <= blocks] if whole else [1],
        "vpp": list(range(1, min(8, blocks) + 1)) if whole and name != "deepspeed" else [1],
        "ep": divisors(of.model.num_experts) if whole and of.model.is_moe else [1],
        "etp": ways if whole and of.model.is_moe else [1],
        "zero": ZERO.get(name, [0]),
        "mbs": [d for d in divisors(batch) if d * of.job.seq_len <= 65_536],
        "sp": [False] if plain or name == "deepspeed" else [False, True],  # AutoTP has none
        "dp_replicate": ways if max(ZERO.get(name, [0])) >= least_zero_of_replicas(name) else [1],
        "cp_kind": CP_KINDS[:1] if plain else CP_KINDS_OF.get(name, CP_KINDS),
        "order": ORDERS,
        "offload": OFFLOADS.get(name, ["none", "optimizer", "parameters"]),
        "act_offload": act_offloads(name, blocks, is_moe=of.model.is_moe) if allowed else ["none"],
        "schedule": {
            "megatron": ["1f1b", "interleaved"],
            "torch": ["gpipe", "1f1b", "interleaved", *SPLIT],
            "torchtitan": ["1f1b", "interleaved", "gpipe", "zb-v", "dualpipe-v"],
        }.get(name, ["1f1b"]),
    }


def all_cuts(blocks: int, count: int) -> set[tuple[int, ...]]:
    """Every cut with at least one block a stage."""
    places = itertools.combinations(range(1, blocks), count - 1)
    return {
        tuple(b - a for a, b in itertools.pairwise((0, *where, blocks)))
        for where in places
        if blocks >= count
    }


def nearly_even_cuts(blocks: int, count: int) -> set[tuple[int, ...]]:
    """Stages of q and q + 1 blocks, the longer ones in a row around the end, 0 to 2 fewer on first and last."""
    found = set()
    for cut in all_cuts(blocks, count):
        for first, last in itertools.product(range(3), repeat=2):
            full = list(cut)
            full[0] += first
            full[-1] += last
            low, high = min(full), max(full)
            steps = sum(full[i] != full[i - 1] for i in range(count))  # a row around the end has two ends
            if high - low <= 1 and steps <= 2:
                found.add(cut)
    return found


def recomputes(cut: tuple[int, ...], words: list[str], *, every_cut: bool) -> Iterator[Recompute]:
    """`none`, `selective:scopes`, and `full:K` with one K, or one per stage where every cut is tried."""
    for word in words:
        kind, _, detail = word.partition(":")
        if kind in ("none", "selective"):
            yield Recompute(tuple(detail.split("+")) if detail else ())
        elif detail == "K, one K for all stages":
            yield from (Recompute((), k) for k in range(1, max(cut) + 1))
        elif not every_cut:
            counts = (tuple(min(k, n) for n in cut) for k in range(1, max(cut) + 1))
            yield from (Recompute((), each) for each in counts)
        else:
            counts = itertools.product(*(range(n + 1) for n in cut))
            yield from (Recompute((), each) for each in counts if any(each))


ROWS = ("tp", "cp", "pp", "ep", "etp", "mbs", "sp")


def meshes(of: Situation, pins: dict[str, object]) -> Iterator[dict]:
    """Every combination of axis values on all devices."""
    every = axis_values(of, allowed=pins.get("act_offload") == "allowed")
    pins = {axis: value for axis, value in pins.items() if value != "allowed"}
    values = {axis: [pins[axis]] if axis in pins else every[axis] for axis in AXES}
    rest = [axis for axis in AXES if axis not in ROWS]
    for point in itertools.product(*(values[axis] for axis in ROWS)):
        row = dict(zip(ROWS, point, strict=True))
        dp, left = divmod(of.cluster.num_devices, row["tp"] * row["cp"] * row["pp"])
        if left or of.job.global_batch % (dp * row["mbs"]) or (row["sp"] and row["tp"] == 1):
            continue
        for more in itertools.product(*(values[axis] for axis in rest)):
            mesh = row | dict(zip(rest, more, strict=True))
            if dp % mesh["dp_replicate"] or mesh["vpp"] not in CHUNKS.get(mesh["schedule"], (1,)):
                continue
            if not alike(mesh, dp, values) and is_combination(mesh, of.engine.name):
                yield mesh | {"dp": dp, "dp_shard": dp // mesh["dp_replicate"]}


def alike(mesh: dict, dp: int, values: dict[str, list]) -> bool:
    """Whether a mesh is another one under a second name: a kind of context parallelism, or an order, of nothing."""
    no_kind = mesh["cp"] == 1 and mesh["cp_kind"] != values["cp_kind"][0]
    no_order = 1 in (mesh["pp"], dp) and mesh["order"] != values["order"][0]
    return no_kind or no_order


def is_combination(mesh: dict, engine: str) -> bool:
    """Whether sharded states exist to be replicated, and sharded parameters to rest on the host."""
    replicas = mesh["dp_replicate"] == 1 or mesh["zero"] >= least_zero_of_replicas(engine)
    return replicas and (mesh["zero"] >= 2 or mesh["offload"] != "parameters")


def strategies(of: Situation, pins: dict[str, object], words: list[str]) -> Iterator[Strategy]:
    """The whole space, legal or not."""
    for mesh in meshes(of, pins):
        count = mesh["pp"] * mesh["vpp"]
        every_cut = mesh["vpp"] == 1 and mesh["schedule"] not in SPLIT
        cuts = (all_cuts if every_cut else nearly_even_cuts)(of.model.num_blocks, count)
        for cut in sorted(cuts):
            for recompute in recomputes(cut, words, every_cut=every_cut):
                yield Strategy(**typed(mesh), recompute=recompute, stages=cut)


def typed(mesh: dict) -> dict:
    """Axis values as a Strategy has them."""
    words = {"schedule": ScheduleName(mesh["schedule"]), "order": tuple(mesh["order"].split("-"))}
    return mesh | words


# ---------------------------------------------------------------- random requests


def random_model(rng: random.Random) -> dict:
    """A layers file of 2 to 6 blocks of one or two kinds."""
    heads = rng.choice((2, 4, 6))
    attention = {"heads": heads, "kv_heads": rng.choice((1, 2, heads)), "head_dim": 64}
    dense = {"kind": "dense", "attention": attention, "mlp": {"width": rng.choice((512, 1536, 4096))}}
    second = {"kind": "wide", "attention": attention, "mlp": {"width": rng.choice((2048, 8192))}}
    if rng.random() < 0.35:
        moe = {"experts": rng.choice((2, 4)), "top_k": rng.choice((1, 2)), "width": rng.choice((512, 2048))}
        second = {"kind": "moe", "attention": attention, "moe": moe}
    counts = rng.choice(((2, 0), (3, 0), (5, 0), (1, 1), (2, 1), (1, 3), (3, 3)))
    layers = [entry | {"count": n} for entry, n in zip((dense, second), counts, strict=True) if n]
    return {
        "layers_file": 1,
        "name": "small",
        "hidden_size": rng.choice((256, 1024)),
        "vocab_size": rng.choice((1000, 32_000)),
        "tied_embeddings": rng.random() < 0.3,
        "layers": layers,
    }


def with_capacity(of: Situation, capacity_bytes: float) -> Situation:
    """The same request on devices of another size."""
    cluster = of.cluster
    size = cluster.device.capacity_bytes.model_copy(update={"value": capacity_bytes})
    device = cluster.device.model_copy(update={"capacity_bytes": size})
    group = cluster.groups[0].model_copy(update={"device": device})
    return situate(of.model, cluster.model_copy(update={"groups": (group,)}), of.job_request)


@dataclass(frozen=True)
class Instance:
    """A request, what is pinned, and the space in words with every strategy of it."""

    situation: Situation
    search: SearchRequest
    space: list[Strategy]


WORDS: dict[tuple[str, bool], list[str]] = {}


def words_of(of: Situation, pins: dict[str, object]) -> list[str]:
    """The recompute of the space as a certificate words it; engine and kinds of block decide it."""
    key = (of.engine.name, of.model.is_moe)
    if key not in WORDS:
        WORDS[key] = list(make_plan(of, SearchRequest(pins=pins)).certificate.space["recompute"])  # type: ignore[call-overload]
    return WORDS[key]


def legal_mesh(of: Situation, rng: random.Random) -> dict[str, object]:
    """Axis values of some mesh that keeps every rule, of any mesh where none does."""
    found = list(meshes(of, {}))
    rng.shuffle(found)
    for mesh in found:
        count = mesh["pp"] * mesh["vpp"]
        cut = min(all_cuts(of.model.num_blocks, count), default=None)
        if cut and not of.engine.violations(
            Facts(of.model, of.cluster, of.job), Strategy(**typed(mesh), recompute=Recompute(), stages=cut)
        ):
            return {axis: mesh[axis] for axis in AXES}
    return {axis: values[0] for axis, values in axis_values(of).items()}


def random_instance(rng: random.Random, most: int) -> Instance:
    """A random request, pinned axis by axis until its space has at most `most` strategies; memory often binds."""
    model = read_model(random_model(rng))
    cluster = load_preset("dgx-h100", rng.choice((1, 2, 3, 4, 4, 6, 8)))
    job = JobRequest(
        seq_len=rng.choice((512, 2048)),
        global_batch=rng.choice((2, 4, 6, 8, 12, 16)),
        engine=rng.choice(ENGINES),
    )
    of = situate(model, cluster, job)
    anchor = legal_mesh(of, rng)
    words = words_of(of, anchor)
    pins: dict[str, object] = {"act_offload": "allowed"} if rng.random() < 0.3 else {}
    space = list(itertools.islice(strategies(of, pins, words), most + 1))
    while len(space) > most:
        axis = rng.choice([a for a in (*AXES, "recompute") if pins.get(a, "allowed") == "allowed"])
        scope = "none" if of.engine.name in WHOLE_LAYERS else "selective:layernorm"
        pins[axis] = rng.choice(("none", scope)) if axis == "recompute" else anchor[axis]
        words = [str(pins["recompute"])] if "recompute" in pins else words
        space = list(itertools.islice(strategies(of, pins, words), most + 1))
    gap = rng.choice((1e-3, 1e-6, 0.0))
    search = SearchRequest(pins=pins, gap=gap, seed=rng.randrange(1000), max_seconds=3600.0)
    sample = [
        p for p in evaluate_many(of, rng.sample(space, min(6, len(space)))) if isinstance(p, Prediction)
    ]
    if sample and rng.random() < 0.8:
        used = rng.choice(sample).memory.device_used_bytes
        of = with_capacity(of, used * rng.choice((0.8, 0.97, 1.02, 1.05, 1.1)))
    return Instance(of, search, space)


# ---------------------------------------------------------------- agreement


def check(instance: Instance) -> str:
    """Compare with brute force; the status of the plan."""
    found = make_plan(instance.situation, instance.search)
    outcomes = evaluate_many(instance.situation, instance.space)
    steps = [p.step_s for p in outcomes if isinstance(p, Prediction) and p.verdict == "fits"]
    if not steps:
        assert found.status == "infeasible"
        assert found.best is None
        return found.status
    agrees(found, min(steps), instance.search.gap)
    return found.status


def agrees(found: PlanResult, brute_s: float, gap: float) -> None:
    """Best and bound stand where the certificate says, around the optimum."""
    certificate = found.certificate
    assert found.status == "optimal"
    assert found.best is not None
    assert certificate.lower_bound_s is not None
    assert found.best.step_s <= brute_s / (1.0 - gap) * (1.0 + ROUNDING)
    assert certificate.lower_bound_s <= brute_s * (1.0 + ROUNDING)
    assert certificate.lower_bound_s <= found.best.step_s
    assert found.best.step_s * (1.0 - gap) <= certificate.lower_bound_s * (1.0 + ROUNDING)


@pytest.mark.parametrize("seed", range(5))
def test_the_plan_is_the_best_of_its_space(seed):
    rng = random.Random(seed)
    for _ in range(5):  # that both answers occur is held below
        check(random_instance(rng, most=40))


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(5, 28))
def test_the_plan_is_the_best_of_460_more_spaces(seed):
    rng = random.Random(seed)
    statuses = [check(random_instance(rng, most=80)) for _ in range(20)]
    assert "optimal" in statuses


BANNED = (("none",), ("none", "selective"), ("selective",), ("full",), ("none", "full"))


def banned(instance: Instance, kinds: tuple[str, ...]) -> Instance:
    """The same request without some kinds of recompute."""
    bans = tuple(f"recompute={kind}" for kind in kinds)
    space = [one for one in instance.space if recompute_kind(one.recompute) not in kinds]
    return Instance(instance.situation, instance.search.model_copy(update={"bans": bans}), space)


MORE = [pytest.param(seed, marks=pytest.mark.matrix) for seed in range(12) if seed != 4]


@pytest.mark.parametrize("seed", [4, *MORE])
def test_the_plan_is_the_best_of_what_bans_leave(seed):
    rng = random.Random(1000 + seed)
    for kinds in BANNED:
        instance = random_instance(rng, most=60)
        while "recompute" in instance.search.pins:
            instance = random_instance(rng, most=60)
        check(banned(instance, kinds))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_the_best_of_a_larger_space(seed):
    rng = random.Random(100 + seed)
    for _ in range(5):
        check(random_instance(rng, most=3000))


@pytest.mark.parametrize("engine", sorted({*ENGINES, "parameter_server"}))
def test_the_certificate_lists_the_same_axis_values(engine):
    rng = random.Random(5)
    for _ in range(3):
        model, cluster = read_model(random_model(rng)), load_preset("dgx-h100", rng.choice((1, 4, 6)))
        of = situate(model, cluster, JobRequest(seq_len=2048, global_batch=12, engine=engine))
        space = make_plan(of, SearchRequest()).certificate.space
        expected = axis_values(of)
        assert {axis: set(space[axis]) for axis in AXES} == {axis: set(expected[axis]) for axis in AXES}


def test_both_answers_and_a_binding_memory_occur():
    rng = random.Random(0)
    statuses = [check(random_instance(rng, most=30)) for _ in range(14)]
    assert statuses.count("infeasible") >= 1
    assert statuses.count("optimal") >= 5
