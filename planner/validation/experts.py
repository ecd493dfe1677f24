"""`python -m planner.validation.experts [--write]`: experts' published layouts against our plans (docs/experts.md).

Each question is a real run; the plan is searched for the same model, cluster, batch and framework, and `explain
--against` says how the experts' layout differs. Optimizer states stay on the devices, as in all of these runs.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cost_models.profiles import profiles_root
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import Strategy, StrategyRequest, parse_strategy
from cost_models.units import GIB, format_seconds
from planner.answers import Prediction
from planner.explain import Contrast, against
from planner.make_plan import make_plan
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.situation import Situation, resolve
from planner.validation.predict import outcome_of
from planner.validation.rows import Run, read_runs

SECONDS: Final = 600.0
PAGE: Final = Path(__file__).parents[2] / "docs" / "experts.md"
NAMED: Final = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "zero", "mbs", "cp_kind")


@dataclass(frozen=True, slots=True)
class Question:
    """One published layout: a row of profiles/published/runs.csv, or a request with the strategy that was named."""

    title: str
    source: str
    remark: str
    row: str = ""
    asked: str = ""
    model: str = ""
    cluster: str = ""
    devices: int = 0
    job: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)


IN_2022: Final = {"cp": "1"}
"""Megatron-LM of 2022 had no context parallelism."""

QUESTIONS: Final = (
    Question(
        "GPT-3 175B, 64 A100",
        "Korthikanti et al. 2022, table 5 (korth-004)",
        "The same degrees; one layer a chunk instead of four trades sends for bubble. Inside the noise.",
        row="korth-004",
        pins=IN_2022,
    ),
    Question(
        "Megatron 530B, 280 A100",
        "Korthikanti et al. 2022, table 5 (korth-006)",
        "The authors' layout is the best one.",
        row="korth-006",
        pins=IN_2022,
    ),
    Question(
        "Megatron 1T, 512 A100",
        "Korthikanti et al. 2022, table 5 (korth-008)",
        "Theirs is faster, and ran; our memory calls it at risk, which a plan may not be unless one asks for it.",
        row="korth-008",
        pins=IN_2022,
    ),
    Question(
        "BLOOM 176B, 384 A100",
        "BigScience's tables of tr11 (bloom-078; trained with TP4 PP12 mbs 2)",
        "The same degrees and micro-batch. Recomputing core attention alone came after the training had begun.",
        row="bloom-078",
        pins=IN_2022,
    ),
    Question(
        "GPT-3 175B in fp8, 2,048 H100",
        "NVIDIA DGXC recipe (dgxc-044)",
        "The recipe runs micro-batches of one sequence; two fill 80 GB, with half of the gathers and larger products.",
        row="dgxc-044",
    ),
    Question(
        "Llama-3.1-405B in fp8, 576 H100",
        "NVIDIA DGXC recipe (dgxc-010)",
        "As good as the recipe: 12 stages for 9, 3 replicas for 4, inside the noise, and with more memory left.",
        row="dgxc-010",
    ),
    Question(
        "Llama-3.1-405B in fp8, 1,024 H100",
        "Megatron-Bridge recipe (bridge-039)",
        "Three sequences over four context ranks for one over two: longer products, more ring traffic.",
        row="bridge-039",
    ),
    Question(
        "Llama-3.1-405B, 16,384 H100",
        "Llama Team 2024, table 4",
        "16 micro-batches on 16 ranks in chunks of one layer are all in flight at once, which 80 GB do not hold: fewer "
        "chunks, and some layers recomputed. Meta ran a schedule of its own that holds fewer; cp 2 gets there, too.",
        asked="tp=8,cp=1,pp=16",
        model="llama-3.1-405b",
        cluster="dgx-h100",
        devices=16384,
        job={"seq_len": 8192, "global_batch": 2048},
    ),
    Question(
        "Llama-3.1-70B, 64 H100",
        "NeMo's recipe (TP4 PP4 CP2 VP5)",
        "cp 4 and tp 2 for cp 2 and tp 4: less of tp's exposed exchange, more micro-batches to fill more stages.",
        asked="tp=4,cp=2,pp=4,vpp=5,mbs=1",
        model="llama-3.1-70b",
        cluster="dgx-h100",
        devices=64,
        job={"seq_len": 8192, "global_batch": 512},
    ),
    Question(
        "DeepSeek-V3 in fp8, 2,048 H800",
        "DeepSeek-AI 2024, section 3.2 (PP16 EP64 ZeRO-1, no tp; 180,000 GPU hours for 1e12 tokens are 19.9 s)",
        "ep 64 crosses eight nodes, ep 32 four. DeepSeek hides the exchange under DualPipe, which Megatron-LM has not; "
        "more stages let the moments stay on the devices.",
        asked="tp=1,cp=1,pp=16,ep=64",
        model="deepseek-v3",
        cluster="dgx-h800",
        devices=2048,
        job={
            "seq_len": 4096,
            "global_batch": 15360,
            "precision": "fp8",
            "options": {
                "job.moe_dispatcher": "deepep",
                "job.moe_dispatch_dtype": "fp8",
                "engine.ep_overlap": True,
            },
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A question with our plan, the contrast, and how sure our plan is."""

    question: Question
    plan: Prediction
    contrast: Contrast
    sure: str


def answered(question: Question, rows: Callable[[str], Run]) -> Answer:
    """Search, then ask about the experts' layout."""
    situation, request = _stated(question, rows)
    search = SearchRequest(pins={"offload": "none", **question.pins}, max_seconds=SECONDS)
    found = make_plan(situation, search)
    if found.best is None or found.status != "optimal":
        raise RuntimeError(f"{question.title}: {found.status} after {SECONDS:g} s; run on an idle machine")
    contrast = against(situation, search, found.best, request, SECONDS)
    return Answer(question, found.best, contrast, found.confidence.sentence() if found.confidence else "")


def _stated(question: Question, rows: Callable[[str], Run]) -> tuple[Situation, StrategyRequest]:
    if not question.row:
        cluster = PresetCluster(name=question.cluster, devices=question.devices)
        situation = resolve(CatalogModel(name=question.model), cluster, JobRequest(**question.job))
        return situation, parse_strategy(question.asked)
    outcome = outcome_of(rows(question.row))
    if outcome.case is None or outcome.prediction is None:
        raise RuntimeError(f"{question.row}: {outcome.skipped}")
    return outcome.case.situation, _request(outcome.prediction.strategy)


def _request(strategy: Strategy) -> StrategyRequest:
    """The layout as it ran, the order of axes on devices apart."""
    values = {name: getattr(strategy, name) for name in NAMED}
    stages = "+".join(map(str, strategy.stages))
    values |= {"schedule": strategy.schedule.value, "recompute": strategy.recompute.text(), "stages": stages}
    values["sp"] = str(strategy.sp).lower()
    return parse_strategy(",".join(f"{key}={value}" for key, value in values.items()))


def page(answers: list[Answer]) -> str:
    """The document."""
    return "\n".join([*HEAD, *(line for one in answers for line in _section(one))]) + "\n"


HEAD: Final = (
    "# Our plans beside the experts'",
    "",
    "Layouts that experts ran, each asked against the plan for the same model, cluster, batch and framework: is our",
    "reason one that they would accept? Seconds are predictions; parts are those of the least idle stage and sum to",
    "the difference. Written by `python -m planner.validation.experts --write`.",
)


def _section(one: Answer) -> Iterator[str]:
    plan, other = one.plan, one.contrast.other
    yield from ("", f"## {one.question.title}", "", one.question.source + ".", "")
    yield "| | layout | step | worst stage |"
    yield "|---|---|---|---|"
    yield _row("ours", plan)
    if other is not None:
        yield _row("theirs", other)
    yield ""
    if one.contrast.difference is None or other is None:
        yield one.contrast.sentence() + "."
    elif one.contrast.verdict == "same":
        yield "The same step."
    else:
        moved = one.contrast.difference
        parts = {cause: s for cause, s in moved.seconds.items() if abs(s) >= 0.0005 * plan.step_s}
        told = ", ".join(f"{s:+.3f} s {cause.replace('_', ' ')}" for cause, s in parts.items())
        rest = sum(moved.seconds.values()) - sum(parts.values())
        sure = one.contrast.plan_faster
        yield f"Theirs takes {moved.step_s:+.3f} s ({moved.step_s / plan.step_s:+.1%}): {told}, {rest:+.3f} s the rest."
        risk = one.contrast.risk().removeprefix("; it ")
        yield f"P(ours is faster) {sure:.0%}." if sure is not None else ""
        if risk:
            yield f"Theirs {risk}."
    yield from ("", one.question.remark)
    if one.sure:
        yield from ("", f"Ours: {one.sure}.")


def _row(name: str, found: Prediction) -> str:
    used = found.memory.device_used_bytes / GIB
    step = f"{format_seconds(found.step_s)} ({found.step_s_low:.3g} to {found.step_s_high:.3g})"
    return f"| {name} | {found.strategy.mesh_text()} | {step} | {used:.1f} GiB, {found.memory.peak_phase} |"


def main(arguments: list[str]) -> int:
    """Answer every question; write the page or print it."""
    published = {run.text("id"): run for run in read_runs(profiles_root() / "published" / "runs.csv")}
    text = page([answered(question, published.__getitem__) for question in QUESTIONS])
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
