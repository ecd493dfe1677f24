"""A row of a table of measured runs -> a situation and a strategy, with every knob that had to be assumed."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.schedule.names import ScheduleName
from cost_models.specs.job import JobRequest, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.megatron import read_megatron
from planner.situation import Situation, situate
from planner.validation.clusters import cluster_of
from planner.validation.framework_table import Framework
from planner.validation.frameworks import (
    framework_of,
    optimizer_of,
    options_of,
    precision_of_run,
)
from planner.validation.models import model_of
from planner.validation.orders import ORDER, order_of_run
from planner.validation.programs import is_program
from planner.validation.rows import Run, Unusable

SCHEDULES: Final = {"1f1b": ScheduleName.ONE_F_ONE_B, "interleaved-1f1b": ScheduleName.INTERLEAVED}

ADAPTERS: Final = "lora:r=16"
"""Rank and targets that published LoRA runs leave to their recipes."""

SHARDED: Final = ("fsdp2", "fsdp1", "torchtitan")
"""Engines that always shard parameters at rest: a stage of 1 in their words is their stage 2."""

ASSUMED: Final[Mapping[str, str]] = {"n_gpus": "assumed_devices", "gpu": "assumed_gpu"}
"""Cells of a test run that are assumed where the cell beside them says so."""

OPTIMIZER_SHARDS: Final = re.compile(r"(?:zero1|shards)=(\d+)")
"""Ranks that states are divided over, where they are fewer than the data-parallel ones (InternEvo, hybrid sharding)."""

BEFORE_FP32_SUMS: Final = "best TFLOPs 02-17"
"""BigScience's runs before its bf16 optimizer, which "was just written" on 2022-02-28, summed gradients in fp32."""

SCOPES: Final = re.compile(r"^selective:([a-z_+]+)$")


@dataclass(frozen=True, slots=True)
class Case:
    """A run ready to be predicted.

    `stretch` corrects the predicted step where the last micro-batch of the run is smaller than the others;
    `assumed` holds the knobs that the source does not state, with the values taken; `nearest` says which engine
    stands for a framework that is not modelled itself.
    """

    run: Run
    situation: Situation
    strategy: StrategyRequest
    assumed: tuple[str, ...]
    nearest: str
    stretch: float = 1.0

    @property
    def architecture(self) -> str:
        """The device's architecture, whose curves price the run."""
        return self.situation.cluster.device.architecture

    @property
    def may_fit(self) -> bool:
        """Whether constants may be fitted to the run: core, every knob stated, the device as in its catalog."""
        usual = "not stated" not in self.run.text("gpu") and "96GB" not in self.run.text("gpu")
        return self.run.is_core and not self.assumed and usual


def case_of(run: Run) -> Case:
    """The case of a run; raises Unusable with the reason where there is none."""
    try:
        if run.text(ORDER):
            return _case_of_order(run)
        return _case(run) if run.arguments is None else _case_of_arguments(run, run.arguments)
    except BadInput as error:
        raise Unusable(str(error).replace("\n", "; ")) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Unusable(f"{key}: {first['msg']}") from error


def _case_of_order(run: Run) -> Case:
    """The case of a run of this project's own, whose row holds everything that it was given."""
    situation, strategy = order_of_run(run)
    return Case(run, situation, strategy, (), "")


def _case(stated: Run) -> Case:
    run, filled = _with_batch(stated)
    framework = framework_of(run)
    precision = precision_of_run(run)
    strategy, assumed = _strategy(run, framework)
    assumed += (*filled, *_taken(run))
    batch, stretch = _whole_batch(run)
    model = model_of(run)
    job = JobRequest(
        seq_len=None if model.is_vision else run.whole("seq_len"),
        global_batch=batch,
        precision=precision,
        engine=_engine(strategy, framework),
        optimizer=optimizer_of(run),
        options=_options(run, framework, precision),
    )
    situation = situate(model, cluster_of(run), job)
    return Case(stated, situation, strategy, assumed, framework.nearest, stretch)


def _with_batch(run: Run) -> tuple[Run, tuple[str, ...]]:
    """The run with a global batch of one micro-batch a rank and accumulated step, where none is stated."""
    if run.text("global_batch") or not run.text("micro_batch"):
        return run, ()
    batch = run.whole("micro_batch") * run.whole("dp", 1) * run.whole("grad_accum", 1)
    return replace(run, cells={**run.cells, "global_batch": str(batch)}), (f"global_batch={batch}",)


def _case_of_arguments(run: Run, arguments: Mapping[str, str]) -> Case:
    """The case of a run whose source gives Megatron-LM's own arguments."""
    settings = read_megatron(
        dict(arguments), run.whole("n_gpus"), program=run.text("program", "gpt"), name=run.text("model")
    )
    assumed = (*settings.assumed, *(f"{name} is not read" for name in settings.unknown))
    assumed += tuple(f"{name}={run.text(name)}" for name in ("n_gpus", "gpu") if run.text(ASSUMED[name]))
    job = settings.job
    if settings.model.is_moe:
        load = {"job.moe_imbalance": run.number("moe_imbalance") or 1.0}
        job = job.model_copy(update={"options": {**job.options, **load}})
    situation = situate(settings.model, cluster_of(run), job)
    return Case(run, situation, settings.strategy, assumed, "")


def _engine(strategy: StrategyRequest, framework: Framework) -> str:
    """fsdp2 has no pipeline; the torch engine, which has, shards alike."""
    return "torch" if framework.engine == "fsdp2" and (strategy.pp or 1) > 1 else framework.engine


def _options(run: Run, framework: Framework, precision: Precision) -> dict[str, Any]:
    options = options_of(run, framework)
    if _trains_adapters(run):
        options["job.trainable"] = ADAPTERS
    megatron = options.get("engine.modules") == "megatron"
    if megatron and precision is Precision.BF16 and BEFORE_FP32_SUMS not in run.text("source_locator"):
        # BF16_Optimizer sums in fp32, and in 2022 kept both kinds
        options |= {"engine.grad_dtype": "fp32", "engine.immediate_grad_update": False}
    return options


def _strategy(run: Run, framework: Framework) -> tuple[StrategyRequest, tuple[str, ...]]:
    axes = {axis: run.whole(axis, 1) for axis in ("tp", "pp", "cp", "ep", "etp", "vpp")}
    recompute, assumed = _recompute(run)
    values: dict[str, Any] = {
        **axes,
        "mbs": _micro_batch(run),
        "dp": run.whole("dp", run.whole("n_gpus") // math.prod(axes[a] for a in ("tp", "pp", "cp")) or 1),
        "recompute": recompute,
        "zero": _zero(run, framework),
    }
    if "offload" in run.text("zero_stage").lower():
        values["offload"] = "parameters"
    shards = OPTIMIZER_SHARDS.search(run.text("zero_stage"))
    if shards and values["dp"] % int(shards[1]) == 0:
        values |= {"dp_shard": int(shards[1]), "dp_replicate": values["dp"] // int(shards[1])}
    if run.text("sequence_parallel"):
        values["sp"] = run.text("sequence_parallel") == "true" and axes["tp"] > 1
    elif axes["tp"] > 1:
        assumed += ("sequence_parallel=true",)
    if _trains_adapters(run):
        assumed += (f"job.trainable={ADAPTERS}",)
    if run.text("schedule") and axes["pp"] > 1:
        schedule = SCHEDULES.get(run.text("schedule"))
        if schedule is None:
            raise Unusable(f"schedule {run.text('schedule')[:40]} is not modelled in this version")
        values["schedule"] = schedule if axes["vpp"] > 1 else ScheduleName.ONE_F_ONE_B
    return StrategyRequest(**values), assumed


def _taken(run: Run) -> tuple[str, ...]:
    """Knobs that the table itself took, as its column `assumed` says."""
    return tuple(knob.strip() for knob in run.text("assumed").split(";") if knob.strip())


def _trains_adapters(run: Run) -> bool:
    return run.text("flops_convention").startswith("model_lora")


def _micro_batch(run: Run) -> int:
    """The stated micro-batch; without one, a rank's whole share where there is no accumulation."""
    share = run.whole("global_batch") // (run.whole("dp", 1) * run.whole("grad_accum", 1))
    return run.whole("micro_batch", max(share, 1) if run.text("kind") == "cnn" else None)


def _zero(run: Run, framework: Framework) -> int | None:
    """The stage that leads the text, as in `1 (distributed optimizer)`; the engine's default where it is empty."""
    text = run.text("zero_stage")
    if not text[:1].isdigit():
        return framework.zero
    stage = int(text[0])
    return max(stage, 2) if framework.engine in SHARDED else stage


def _recompute(run: Run) -> tuple[str, tuple[str, ...]]:
    """Recompute in the contract's words; what the source does not state is the framework's default, none."""
    text = run.text("recompute")
    if not text:
        return "none", ("recompute=none",)
    if "offload" in text and not is_program(run):
        raise Unusable(f"recompute {text!r}: offload is not modelled in this version")
    if "per-op" in text:
        return "selective:per_op", ()
    known = SCOPES.match(text)
    if known:
        return f"selective:{known[1]}", ()
    word = text.split(" ")[0]
    if word in ("none", "full", "selective"):
        return word, ()
    raise Unusable(f"recompute {text[:60]!r} is not known")


def _whole_batch(run: Run) -> tuple[int, float]:
    """Global batch in whole micro-batches, and the part of it that the run really had.

    Composer splits what a rank gets into micro-batches of the given size and one smaller rest.
    """
    batch, micro = run.whole("global_batch"), _micro_batch(run)
    ranks = run.whole("dp", 1)
    share = batch / ranks
    if "Composer" not in run.text("framework") or batch % ranks or share % micro == 0:
        return batch, 1.0
    rounded = math.ceil(share / micro) * micro * ranks
    return rounded, batch / rounded
