"""Random plans of an engine, and the situations they are for."""

import random
from collections.abc import Iterator

from cost_models.errors import IllegalStrategy
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve

SCHEDULES = {"megatron": ("1f1b",), "torchtitan": ("1f1b", "interleaved", "gpipe", "zb-v")}


def situation(model: str, engine: str, devices: int = 64, **options: object) -> Situation:
    """A pretraining job on Hopper nodes."""
    job = JobRequest(
        seq_len=1024 if model.startswith("gpt2") else 4096, global_batch=512, engine=engine, options=options
    )
    return resolve(CatalogModel(name=model), PresetCluster(name="dgx-h100", devices=devices), job)


def random_runs(of: Situation, seed: int, wanted: int) -> Iterator[PlannedRun]:
    """Runs that the engine's rules allow."""
    rng, engine, found = random.Random(seed), of.job.engine, 0
    for _ in range(wanted * 40):
        if found == wanted:
            return
        try:
            yield PlannedRun(of, evaluate(of, parse_strategy(_words(rng, of, engine))).strategy)
        except IllegalStrategy:
            continue
        found += 1


def _words(rng: random.Random, of: Situation, engine: str) -> str:
    pipelined = engine in ("megatron", "torchtitan")
    pp = rng.choice((1, 2, 4)) if pipelined else 1
    schedule = rng.choice(SCHEDULES.get(engine, ("1f1b",)))
    vpp = {"interleaved": 2, "zb-v": 2}.get(schedule, rng.choice((1, 2)) if engine == "megatron" else 1)
    words = [f"tp={rng.choice((1, 2, 4, 8))},pp={pp},mbs={rng.choice((1, 2, 4))}"]
    words.append(f"ep={rng.choice((1, 2, 8)) if of.model.is_moe and pipelined else 1}")
    if pp > 1:
        words.append(f"vpp={vpp}" + ("" if engine == "megatron" else f",schedule={schedule}"))
    if engine in ("megatron", "torchtitan"):
        words.append(f"cp={rng.choice((1, 2))},recompute={rng.choice(('none', 'selective', 'full'))}")
    else:
        words.append(f"recompute={rng.choice(('none', 'full'))}")
    if engine == "deepspeed":
        words.append(f"zero={rng.choice((0, 1, 2, 3))}")
    if engine == "fsdp2":
        words.append(f"sp=false,zero={rng.choice((2, 3))},dp_replicate={rng.choice((1, 2))}")
    if engine == "megatron" and pp > 1 and rng.random() < 0.4:
        blocks, parts = of.model.num_blocks, pp * vpp
        cuts = sorted(rng.sample(range(1, blocks), parts - 1))
        words.append(
            "stages=" + "+".join(str(b - a) for a, b in zip((0, *cuts), (*cuts, blocks), strict=True))
        )
    return ",".join(words)
