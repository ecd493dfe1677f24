"""Variations of users' invalid layouts: engines refuse by their own rules alone, and the ways out that they name go.

`broken` states the rules of the frameworks by hand (sources beside them), apart from the planner's own.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner

from cost_models.engines import complete
from cost_models.errors import IllegalStrategy, Violation
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.cli.group import planner
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve_cluster, resolve_model, situate

MODELS = {  # query heads, key/value heads, width of dense feed-forward layers (0: none), experts
    "llama-3-8b": (32, 8, 14336, 0),
    "qwen2.5-7b": (28, 4, 18944, 0),
    "llama-1-33b": (52, 52, 17920, 0),
    "gpt-oss-20b": (64, 8, 0, 32),
    "qwen3-30b-a3b": (32, 4, 0, 128),
}
ENGINES = (
    "megatron@0.15",
    "megatron@0.19",
    "torchtitan@0.2",
    "torchtitan@0.3",
    "deepspeed@0.19",
    "fsdp2",
    "fsdp1",
    "ddp",
)
DEVICES = (1, 4, 5, 6, 7, 8, 8, 12, 16, 24, 32)
LENGTHS = (4096, 4096, 4100, 2047, 1536, 3000)
BATCHES = (64, 64, 60, 100, 7, 48, 96)
VALUES = {
    "tp": (2, 3, 4, 5, 7, 8),
    "pp": (2, 3, 4, 6),
    "cp": (2, 3, 4),
    "mbs": (2, 3, 4),
    "ep": (2, 3, 4, 8, 16),
}
ALONE = {"fsdp1": ("tp", "cp", "pp", "ep"), "fsdp2": ("pp", "ep"), "ddp": ("tp", "cp", "pp", "ep")}


@dataclass(frozen=True)
class Asked:
    """A layout that somebody asks about."""

    model: str
    engine: str
    devices: int
    seq_len: int
    batch: int
    stated: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.stated.items()) or "tp=1"

    def axis(self, name: str) -> int:
        return int(self.stated.get(name, 1))


def drawn(number: int) -> Iterator[Asked]:
    rng = random.Random(20261201)
    for _ in range(number):
        model = rng.choice(list(MODELS))
        axes = ["tp", "tp", "pp", "mbs", "cp", *(["ep", "ep"] if MODELS[model][3] else [])]
        stated = {axis: rng.choice(VALUES[axis]) for axis in rng.sample(axes, k=rng.choice((1, 2, 3)))}
        if "pp" in stated and rng.random() < 0.3:
            stated["vpp"] = rng.choice((2, 3))
        if rng.random() < 0.2:
            stated["zero"] = rng.randrange(4)
        size = (rng.choice(DEVICES), rng.choice(LENGTHS), rng.choice(BATCHES))
        yield Asked(model, rng.choice(ENGINES), *size, stated)


def broken(asked: Asked) -> set[str]:
    """Rules that the framework would break on, by hand."""
    tp, cp, pp, ep, mbs = (asked.axis(name) for name in ("tp", "cp", "pp", "ep", "mbs"))
    inner = tp * cp * pp
    if asked.devices % inner:
        return {"world_size"}
    dp = asked.devices // inner
    batch = {"batch"} if asked.batch % (mbs * dp) else set()
    heads = {name for name, wrong in _heads(asked, tp, cp) if wrong}
    experts = {name for name, wrong in _experts(asked, ep, tp * cp * dp) if wrong}
    micro = 0 if batch else asked.batch // (mbs * dp)
    return batch | heads | experts | _pipeline(asked, pp, micro) | _engine(asked) | _sequence(asked, tp, cp)


def _heads(asked: Asked, tp: int, cp: int) -> Iterator[tuple[str, bool]]:
    """megatron/core/transformer_config.py; DTensor divides heads whole; ulysses_sp.py copies key/value heads."""
    query, keys, width, _ = MODELS[asked.model]
    yield "ffn_tp", width % tp > 0
    yield "heads_tp", query % tp > 0
    copies = asked.engine == "megatron@0.19"  # since core 0.16
    yield "kv_heads_tp", keys % tp > 0 and not (copies and tp % keys == 0)
    if asked.engine.startswith("deepspeed"):
        yield "ulysses_heads", query % cp > 0 or (keys % cp > 0 and cp % keys > 0)


def _experts(asked: Asked, ep: int, ranks: int) -> Iterator[tuple[str, bool]]:
    experts = MODELS[asked.model][3]
    yield "experts_ep", bool(experts) and experts % ep > 0
    yield "expert_ranks", bool(experts) and ranks % ep > 0


def _sequence(asked: Asked, tp: int, cp: int) -> set[str]:
    """arguments.py and torchtitan/trainer.py: 2 x cp, x tp under sequence parallelism; ulysses_sp.py: cp."""
    need = cp if asked.engine.startswith("deepspeed") else (2 * cp if cp > 1 else 1) * tp
    return {"sequence_length"} if asked.seq_len % need else set()


def _pipeline(asked: Asked, pp: int, micro: int) -> set[str]:
    """schedules.py: interleaving takes micro-batches in groups of pp; torch's 1F1B at least one a stage."""
    vpp, found = asked.axis("vpp"), set()
    pipes = asked.engine.startswith(("megatron", "torchtitan"))
    if pipes and vpp > 1 and micro % pp:
        found.add("schedule")
    if asked.engine.startswith("torchtitan") and vpp == 1 and pp > 1 and 0 < micro < pp:
        found.add("torchtitan_micro_batches")
    return found


def _engine(asked: Asked) -> set[str]:
    """Axes and ZeRO stages that an engine has not."""
    name, zero = asked.engine.partition("@")[0], asked.stated.get("zero")
    found = {f"{name}_{axis}" for axis in ALONE.get(name, ()) if asked.axis(axis) > 1}
    if asked.axis("vpp") > 1 and name in ("fsdp1", "ddp"):
        found.add(f"{name}_vpp")
    stages = {"megatron": (0, 1), "ddp": (0,), "deepspeed": (0, 1, 2, 3)}.get(name, (2, 3))
    if zero is not None and zero not in stages:
        found.add(f"{name}_zero")
    if name == "deepspeed":
        found |= _deepspeed(asked, 1 if zero is None else zero)
    return found


def _deepspeed(asked: Asked, zero: int) -> set[str]:
    """runtime/pipe/engine.py, runtime/engine.py, AutoTP and sequence_parallel_size."""
    tp, cp, pp, ep = (asked.axis(name) > 1 for name in ("tp", "cp", "pp", "ep"))
    rules = {
        "deepspeed_pp_zero": pp and zero > 1,
        "deepspeed_vpp": asked.axis("vpp") > 1,
        "deepspeed_tp_zero": tp and zero == 3,
        "deepspeed_moe_zero": ep and zero == 3,
        "deepspeed_cp_axes": cp and (tp or pp),
    }
    return {name for name, wrong in rules.items() if wrong}


Judge = Callable[[Asked], tuple[Violation, ...]]


@pytest.fixture(scope="module")
def judge() -> Judge:
    """The planner's own verdict; models and clusters are read once."""
    models = {name: resolve_model(CatalogModel(name=name)) for name in MODELS}
    cluster = cache(lambda devices: resolve_cluster(PresetCluster(name="dgx-h100", devices=devices)))

    def violations(asked: Asked) -> tuple[Violation, ...]:
        job = JobRequest(seq_len=asked.seq_len, global_batch=asked.batch, engine=asked.engine)
        of = situate(models[asked.model], cluster(asked.devices), job)
        try:
            strategy = complete(of.engine, of.facts, parse_strategy(asked.text))
        except IllegalStrategy as refused:
            return refused.violations
        return of.engine.violations(of.facts, strategy)

    return violations


def instead(way: str, asked: Asked) -> list[Asked]:
    """The layouts that one of the named ways out means; none for ways in words."""
    axis = re.fullmatch(r"(tp|cp|pp|vpp|ep|mbs|zero) ([\d, or]+?)(?: or less)?", way)
    if axis:
        values = re.findall(r"\d+", axis[2])
        return [replace(asked, stated={**asked.stated, axis[1]: int(value)}) for value in values]
    devices = re.fullmatch(r"([\d,]+)(?: or ([\d,]+))? devices", way)
    if devices:
        return [replace(asked, devices=int(n.replace(",", ""))) for n in devices.groups() if n]
    batch = re.fullmatch(r"global batch (\d+)(?: or (\d+))?(?: or more)?", way)
    if batch:
        return [replace(asked, batch=int(n)) for n in batch.groups() if n]
    length = re.fullmatch(r"sequence length (\d+)", way)
    return [replace(asked, seq_len=int(length[1]))] if length else []


def test_rules_are_those_of_the_framework_and_their_ways_out_go(judge: Judge) -> None:
    tried = refused = 0
    for asked in drawn(260):
        found = judge(asked)
        assert {violation.rule for violation in found} == broken(asked), asked
        refused += bool(found)
        for violation in found:
            for other in (each for way in violation.nearest for each in instead(way, asked)):
                again = {each.rule for each in judge(other)}
                assert violation.rule not in again, (asked, violation, other)
                tried += 1
    assert refused > 150
    assert tried > 400


def test_the_command_says_what_the_rules_say(judge: Judge) -> None:
    for asked in drawn(16):
        size = f"--cluster dgx-h100:{asked.devices} --seq-len {asked.seq_len} --global-batch {asked.batch}"
        words = (
            f"evaluate --model {asked.model} {size} --engine {asked.engine} --strategy {asked.text} --json"
        )
        answer, found = CliRunner().invoke(planner, words.split()), judge(asked)
        assert answer.exit_code in ((2,) if found else (0, 1)), words
        assert (answer.stdout == "") is bool(found)
        assert all(violation.sentence() in answer.stderr for violation in found)


@pytest.mark.parametrize(
    ("engine", "text", "rule", "ways"),
    [
        # torchtitan/distributed/parallel_dims.py: efsdp = dp_shard x cp x tp / ep; replicas hold all experts again.
        ("torchtitan", "ep=8,dp_replicate=2", "torchtitan_expert_shards", ("ep 1, 2 or 4", "dp_replicate 1")),
        ("torchtitan", "ep=4,dp_replicate=2", None, ()),
        # torchtitan/config/configs.py: enable_sequence_parallel is an option since 0.3.
        ("torchtitan@0.3", "tp=2,sp=false", None, ()),
        ("torchtitan@0.2", "tp=2,sp=false", "torchtitan_sp", ("sp=true", "tp 1", "engine torchtitan@0.3")),
        # megatron/core/parallel_state.py: instances divide the data-parallel ranks of the experts, 8 / 8 = 1.
        ("megatron", "ep=8,dp_replicate=2", "megatron_expert_replicas", ("dp_replicate 1",)),
        ("megatron", "ep=2,dp_replicate=2,zero=0", "megatron_replicas", ("zero 1", "dp_replicate 1")),
        ("megatron", "ep=2,etp=3", "expert_ranks", ("etp 1, 2, 4 or 8",)),
        # 24 layers: pp 4 x vpp 7 = 28 stages, vpp 6 at most.
        ("megatron", "pp=4,vpp=7", "layers_stages", ("vpp 6", "pp 3 or less")),
    ],
)
def test_rules_of_two_axes(
    judge: Judge, engine: str, text: str, rule: str | None, ways: tuple[str, ...]
) -> None:
    stated = dict(part.split("=") for part in text.split(","))
    found = judge(Asked("gpt-oss-20b", engine, 8, 4096, 64, stated))
    if rule is None:
        assert not found
        return
    assert {violation.rule: violation.nearest for violation in found}[rule] == ways


def test_a_stage_more_than_layers_holds_the_loss_alone(make_situation: Callable[..., Situation]) -> None:
    """NVIDIA's recipe of Llama-3.1-405B: 126 layers on pp 16 x vpp 8 = 128 stages, embedding and loss alone."""
    of = make_situation("llama-3.1-405b", "dgx-h100", 2048, seq_len=8192, global_batch=256)
    whole = complete(of.engine, of.facts, parse_strategy("tp=8,pp=16,vpp=8"))
    assert whole.stages == (0, *(1,) * 126, 0)
    assert not of.engine.violations(of.facts, whole)
    with pytest.raises(IllegalStrategy, match="129 stages for 126 layers"):
        of.engine.check_strategy(of.facts, complete(of.engine, of.facts, parse_strategy("tp=8,pp=1,vpp=129")))
