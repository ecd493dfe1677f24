"""What differs between a model or a job and what a framework's settings build: read back, field by field."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.operators.base import Operator
from cost_models.specs.job import JobRequest
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import Strategy, StrategyRequest, strategy_from_mapping
from planner.answers import Prediction
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.settings import Beside, Settings
from planner.situation import Situation, situate

COSTLESS: Final = frozenset(
    (
        "name",
        "inputs",
        "unfused_copies",
        "fp32_softmax",
        "value_store",
        "store_holds_qk",
        "fp32_input",
        "tie",
        "offset",
    )
)
"""Fields that only name things, or that matter to other engines' modules alone."""

SAME_FUNCTION: Final = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}
MOST: Final = 8


def model_differences(ours: ModelSpec, theirs: ModelSpec) -> tuple[str, ...]:
    """Sentences for layers, operators and fields that differ and cost something; the first few kinds of each."""
    mine, built = list(_layers(ours)), list(_layers(theirs))
    if len(mine) != len(built):
        return (f"{ours.name} has {len(mine)} layers, the settings build {len(built)}",)
    found: dict[str, None] = {}
    for left, right in dict.fromkeys(zip(mine, built, strict=True)):
        for sentence in _kind_differences(ours, theirs, left, right):
            found[sentence] = None
    return tuple(found)[:MOST]


def _layers(model: ModelSpec) -> Iterator[str]:
    """Kind of every layer, embedding and head included."""
    for layer in model.layers:
        yield from (layer.kind for _ in range(layer.count))


def _kind_differences(ours: ModelSpec, theirs: ModelSpec, left: str, right: str) -> Iterator[str]:
    """Differences between two kinds, operator by operator."""
    mine = {each.name: each for each in ours.kinds[left].operators}
    built = {each.name: each for each in theirs.kinds[right].operators}
    for name in (*mine, *(other for other in built if other not in mine)):
        if name not in built:
            yield f"layers {left}: {name} is not built"
        elif name not in mine:
            yield f"layers {left}: {name} is built beside the model's own operators"
        else:
            yield from _operator_differences(left, mine[name], built[name])


def _operator_differences(kind: str, mine: Operator, built: Operator) -> Iterator[str]:
    left, right = _fields(mine), _fields(built)
    for field in (*left, *(other for other in right if other not in left)):
        if left.get(field) != right.get(field):
            yield f"layers {kind}: {mine.name} has {field} {left.get(field)}, the settings build {right.get(field)}"


def _fields(operator: Operator) -> dict[str, Any]:
    """Fields that cost something."""
    values = {key: value for key, value in operator.model_dump().items() if key not in COSTLESS}
    if "function" in values:
        values["function"] = SAME_FUNCTION.get(values["function"], values["function"])
    return values


def option_losses(ours: Situation, theirs: Situation, strategy: Strategy) -> tuple[str, ...]:
    """Options whose value is not the one that the settings mean, and that move the prediction by themselves."""
    mine, built = _options(ours), _options(theirs)
    different = {key: built[key] for key in mine if key in built and mine[key] != built[key]}
    if not different:
        return ()
    request = strategy_from_mapping(strategy.to_json())
    before = evaluate(ours, request)
    return tuple(
        f"{key}={_word(mine[key])} is not said by the settings, which mean {_word(value)}"
        for key, value in different.items()
        if key not in UNSAID and _moves(ours, request, before, key, value)
    )


def read_back_losses(
    run: PlannedRun, read: Callable[[Beside], Settings], elsewhere: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What settings of a given model mean otherwise than the plan: its strategy's knobs, then options.

    Knobs that are said `elsewhere` (in the Trainer's arguments) are taken from the plan.
    """
    ours, plan = run.situation, run.strategy
    job = {"seq_len": ours.job_request.seq_len, "global_batch": ours.job.global_batch}
    settings = read(Beside(ours.cluster.num_devices, ours.model, job, ours.job.engine_version))
    theirs = situate(ours.model, ours.cluster, _without_adapters(settings.job))
    adapters = str(settings.job.options.get("job.trainable", "all"))
    said = {key: value for key, value in plan.to_json().items() if key in elsewhere}
    knobs = knob_losses(plan, theirs, settings.strategy.model_copy(update=said))
    if adapters != ours.job.options.trainable:
        knobs = (
            *knobs,
            f"job.trainable={ours.job.options.trainable} is not said by the settings, which mean {adapters}",
        )
    return (*knobs, *option_losses(ours, theirs, plan))


def knob_losses(plan: Strategy, theirs: Situation, stated: StrategyRequest) -> tuple[str, ...]:
    """Knobs of a plan whose value is not the one that the settings mean."""
    read = evaluate(theirs, stated).strategy
    meant = read.to_json()
    same = {"cp_kind"} if plan.cp == 1 else set[str]()
    if _recomputed(plan) == _recomputed(read):
        same.add("recompute")  # full:80 of 80 layers is full
    return tuple(
        f"{key}={_word(value)} is not said by the settings, which mean {_word(meant[key])}"
        for key, value in plan.to_json().items()
        if meant[key] != value and key not in same
    )


def _recomputed(plan: Strategy) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Scopes and fully recomputed layers of every stage, whichever way they are written."""
    return plan.recompute.scopes, plan.recompute.full_layers(plan.stages)


def _without_adapters(job: JobRequest) -> JobRequest:
    """The same job for a model that has its adapters already."""
    options = {key: value for key, value in job.options.items() if key != "job.trainable"}
    return job.model_copy(update={"options": options})


UNSAID: Final = frozenset(
    (
        "engine.expandable_segments",
        "engine.modules",
        "job.trainable",
        "job.reserve_bytes",
        "job.max_oom_probability",
        "job.moe_imbalance",
    )
)
"""Options that describe the machine, the asker or the program (`module_losses`), not the framework's settings."""


def _options(situation: Situation) -> dict[str, Any]:
    """All options of engine and job by their names, defaults filled."""
    engine, job = situation.engine.options.model_dump(), situation.job.options.model_dump()
    return {f"engine.{key}": value for key, value in engine.items()} | {
        f"job.{key}": value for key, value in job.items()
    }


def _moves(
    situation: Situation, strategy: StrategyRequest, before: Prediction, key: str, value: object
) -> bool:
    """Whether one option alone changes step time or memory; one that cannot be set alone counts as changing."""
    job = _without_adapters(situation.job_request)
    options = {**job.options, key: value}
    try:
        after = evaluate(
            situate(situation.model, situation.cluster, job.model_copy(update={"options": options})), strategy
        )
    except BadInput:
        return True
    return (before.step_s, before.memory.device_used_bytes) != (after.step_s, after.memory.device_used_bytes)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
