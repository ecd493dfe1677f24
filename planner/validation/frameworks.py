"""Rows of published runs -> framework, precision, optimizer and options, by the table of frameworks."""

from dataclasses import replace
from typing import Final

from cost_models.specs.job import Optimizer, Precision, Scalar
from planner.validation.framework_table import (
    BLACKWELL,
    EAGER,
    FRAMEWORKS,
    GRAPHS,
    MEGATRON_2022,
    NARROW_PARAMETERS,
    NARROW_STATES,
    ONE_COPY,
    PRECISION_AWARE,
    Framework,
)
from planner.validation.programs import (
    PROGRAMS,
    engine_of_program,
    is_program,
    is_pure,
    program_options,
)
from planner.validation.rows import Run, Unusable

BEFORE_EARLY_STOP: Final = "MP mode PURE"
"""llm-foundry's tables of May 2023, before torch 2.1; those of October are of mode DEFAULT."""

REPAIRED: Final = ("(02-25)", "(02-26)", "(02-27)", "(02-28)")
"""Days of BigScience's prequel after "PCI-Express/NUMA was improved": not to be compared with those before, it says."""

BEFORE_ZERO_MERGE: Final = "bigscience experiments/"
FIRST_DEEPSPEED: Final = "deepspeed@0.4"
"""BigScience's first experiments, of 2021, and the DeepSpeed they ran."""

_PRECISIONS: Final = (
    ("nvfp4", Precision.NVFP4),
    ("mxfp8", Precision.MXFP8),
    ("fp8", Precision.FP8),
    ("float8", Precision.FP8),
    ("bf16", Precision.BF16),
    ("fp16", Precision.FP16),
    ("tf32", Precision.TF32),
    ("fp32", Precision.FP32),
)
_OPTIMIZERS: Final = (
    ("8-bit", Optimizer.ADAM8BIT),
    ("adam", Optimizer.ADAMW),
    ("sgd", Optimizer.SGD),
    ("muon", Optimizer.MUON),
    ("adafactor", Optimizer.ADAFACTOR),
    ("lamb", Optimizer.ADAMW),
)


def framework_of(run: Run) -> Framework:
    """The reading of a run's framework; raises Unusable where no engine is near enough."""
    name = run.text("framework")
    found = next((known for part, known in FRAMEWORKS if part.lower() in name.lower()), None)
    if found is None or not found.engine:
        raise Unusable(f"engine {name[:60]} is not modelled in this version")
    if found.engine == "fsdp1" and BEFORE_EARLY_STOP in run.text("notes"):
        return replace(found, engine="fsdp1@2.0")
    if found.engine == "deepspeed" and run.text("source_locator").endswith(REPAIRED):
        return replace(found, generation=f"{found.generation}-numa")
    first = found.engine == "deepspeed" and BEFORE_ZERO_MERGE in run.text("source")
    if found.engine in PROGRAMS:
        return replace(
            found, engine=engine_of_program(found.engine, run), options=program_options(found.engine, run)
        )
    return replace(found, engine=FIRST_DEEPSPEED) if first else found


def precision_of_run(run: Run) -> Precision:
    """The precision of the matrix multiplications."""
    text = run.text("precision").lower()
    for part, precision in _PRECISIONS:
        if part in text:
            return precision
    raise Unusable(f"precision {text[:60]!r} is not known")


def optimizer_of(run: Run) -> Optimizer:
    """The optimizer; raises Unusable for steps fused into backward or run on the host, where no program says how."""
    text = run.text("optimizer", "adam").lower()
    if ("in backward" in text or "cpu" in text) and not is_program(run):
        raise Unusable(f"optimizer {text[:60]!r} is not modelled in this version")
    for part, optimizer in _OPTIMIZERS:
        if part in text:
            return optimizer
    raise Unusable(f"optimizer {text[:60]!r} is not known")


RECIPES: Final = "performance-summary"
"""Sources that hold Bridge's performance recipes, all of which set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
(megatron/bridge/perf_recipes of 0.6)."""


def options_of(run: Run, framework: Framework) -> dict[str, Scalar]:
    """Options of the framework's recipes, then what the row's own words say."""
    options = {"engine.generation": framework.generation, **framework.options}
    notes, hint = run.text("notes"), run.text("recompute_hint")
    words = f"{notes}; {hint}"
    if framework.engine == "megatron":
        if run.text("precision").lower().startswith("fp16") and framework.generation != "megatron-2022":
            # fp16 runs of Megatron-LM predate FlashAttention
            options |= {**MEGATRON_2022, "engine.generation": "megatron-2022"}
        if "Megatron-FSDP" in run.text("zero_stage"):
            options["engine.megatron_fsdp"] = True
        if "fp32 grad" in words:
            options["engine.grad_dtype"] = "fp32"
        if "unfused attention" in words:
            options["engine.attention"] = "unfused"
        if "cuda_graph=" in words.lower() and "cuda_graph=none" not in words.lower():
            options["engine.cuda_graphs"] = True
        options |= _moe_options(run, words)
    elif "compile" in notes and "no compile" not in notes:
        options["engine.compile"] = True
    if framework.engine == "torchtitan":
        options |= _titan_options(run, notes)
    return options | _number_options(run, framework)


def _number_options(run: Run, framework: Framework) -> dict[str, Scalar]:
    """What a row or its recipe says of numbers and memory: pure bf16, fp8 parameters, narrow states, the allocator."""
    found: dict[str, Scalar] = {}
    if "expandable_segments:True" in run.text("notes") or RECIPES in run.text("source"):
        found["engine.expandable_segments"] = True
    if is_pure(run):
        if framework.engine == "megatron":
            text = run.text("precision")[:60]
            raise Unusable(f"precision {text!r} keeps all states in bf16, as megatron cannot")
        found["engine.param_dtype"] = "bf16"
    if framework.engine == "megatron" and "delayed scaling" in run.text("precision"):
        found["engine.fp8_recipe"] = "delayed"
    name = run.text("framework").lower()
    if ("bridge" in name or "nemo" in name) and precision_of_run(run) in (Precision.FP8, Precision.MXFP8):
        found |= NARROW_PARAMETERS
        tensor_wise = precision_of_run(run) is Precision.FP8
        found |= ONE_COPY if tensor_wise and run.text("gpu").startswith(BLACKWELL) else {}
    if run.text("source_locator") == "Nemotron4-340B README 24.11":
        found |= NARROW_STATES
    if "bridge" in name and run.text("model").startswith(("deepseek-v3", "kimi", "moonlight")):
        found |= PRECISION_AWARE
    return found


def _titan_options(run: Run, notes: str) -> dict[str, Scalar]:
    """What torchtitan's tables say beside the layout: asynchronous tensor parallelism, gathers in float8."""
    gathers = "float8 all-gather" in run.text("precision")
    return {"engine.async_tp": "async tp" in notes.lower(), "engine.float8_all_gather": gathers}


def _moe_options(run: Run, words: str) -> dict[str, Scalar]:
    """Dispatcher, expert overlap, padding and multi-token prediction of mixtures of experts."""
    if run.is_dense:
        return {}
    found: dict[str, Scalar] = {}
    lower = f"{words} {run.text('framework')}".lower()
    if "bridge" in lower and not any(word in lower for word in ("hybridep", "deepep", "cuda_graph", "nemo")):
        found["engine.generation"] = EAGER
    if "cuda_graph=full_iteration" in lower:
        found["engine.generation"] = GRAPHS
    for dispatcher in ("hybridep", "deepep"):
        if dispatcher in lower:
            found["job.moe_dispatcher"] = dispatcher
            break
    if "ep_overlap=true" in lower:
        found["engine.ep_overlap"] = True
    if "capacity factor 1 padded" in lower:
        found["job.moe_capacity_factor"] = 1.0
    without = "w/o mtp" in lower or "nomtp" in run.text("flops_convention")
    if run.model_file().get("num_nextn_predict_layers") and not without:
        found["job.train_mtp"] = True
    return found
