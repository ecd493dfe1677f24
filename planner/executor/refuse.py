"""What stands against running an order here: every knob is honoured as planned, or refused by name before launch."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from cost_models.errors import IllegalStrategy, Violation
from cost_models.fine_tuning import without_adapters
from cost_models.schedule.names import ScheduleName
from cost_models.specs.job import Precision
from cost_models.specs.pools import SHARED
from cost_models.units import format_bytes
from planner.evaluation import evaluate
from planner.executor.refuse_divided import context_violations, expert_violations
from planner.executor.request import RunOrder

ENGINES: Final = ("torch", "ddp", "fsdp2", "parameter_server")
PRECISIONS: Final = (Precision.FP32, Precision.TF32, Precision.BF16)
SCHEDULES: Final = (
    ScheduleName.GPIPE,
    ScheduleName.ONE_F_ONE_B,
    ScheduleName.INTERLEAVED,
    ScheduleName.ZB_H1,
    ScheduleName.ZB_V,
    ScheduleName.DUALPIPE_V,
)
OFFLOADS: Final = ("none", "optimizer", "optimizer:1.0", "parameters")
OFFLOADING: Final = ("torch", "fsdp2")
MAX_CPU_PROCESSES: Final = 64
KINDS: Final = ("pretrain", "sft")
# Engine options that change what runs, with the values that this executor runs.
HONOURED_OPTIONS: Final[dict[str, tuple[object, ...]]] = {
    "attention": ("flash", "unfused"),
    "fused_cross_entropy": (False, True),
    "grad_dtype": ("fp32",),
    "moment_dtype": ("fp32",),
    "param_dtype": ("fp32",),
    "router_aux_loss": (False,),
    "modules": ("fused",),
    "grouped_experts": (False,),
    "compile": (False,),
    "overlap": (True,),
    "initialise": ("sharded",),
    "load": ("sharded",),
    "logit_metrics": (0,),
    "logits_fp32": (True,),
    "shifted_logits": (False,),
    "offload_checkpoints": (False,),
    "optimizer_impl": ("auto",),
    "gradient_as_bucket_view": (True,),
    "servers": (1,),
}
OTHER_OPTIONS: Final = (
    "channels_last",
    "cross_entropy_chunks",
    "expandable_segments",
    "dropout",
    "generation",
    "nvlink_sharp",
    "offload_streams",
)
"""Engine options of which every value is run, or that only price a run."""

Check = Callable[[RunOrder], list[Violation]]


def check_run(order: RunOrder, devices: int | None = None) -> None:
    """Raise IllegalStrategy with everything that would not be run as planned, or BadInput for an unusable data file."""
    found = run_violations(order, devices) or tuple(_host_memory(order, devices))
    if found:
        raise IllegalStrategy(found)
    if has_torch():
        from planner.executor.data import check_file

        check_file(order)


def run_violations(order: RunOrder, devices: int | None = None) -> tuple[Violation, ...]:
    """Everything that stands against the run; `devices` are the GPUs here, 0 on a machine without (None: look)."""
    engine = _engine(order)
    if engine:
        return tuple(engine)
    at_hand = count_devices() if devices is None else devices
    checks: tuple[Check, ...] = (_axes, _schedule, _offload, _options)
    if has_torch():
        checks += (_operators, _factory, _optimizer, _data)
    found = [violation for check in checks for violation in check(order)]
    return (*found, *_devices(order, at_hand), *_precision(order, at_hand))


def has_torch() -> bool:
    """Whether torch is here: a machine that only hands runs on leaves to the nodes what needs it."""
    return find_spec("torch") is not None


def count_devices() -> int:
    """GPUs that torch can use here."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _engine(order: RunOrder) -> list[Violation]:
    name = order.situation.job.engine
    if name in ENGINES:
        return []
    detail = f"engine {name} is run by its own script, which this executor does not start"
    return [Violation("run_engine", detail, ("a plan made with --engine torch", *ENGINES[1:]))]


def _data(order: RunOrder) -> list[Violation]:
    from planner.executor.data import data_violations

    return list(data_violations(order))


def _axes(order: RunOrder) -> list[Violation]:
    strategy = order.strategy
    found = [*context_violations(order), *expert_violations(order)]
    if len({name for text in strategy.stage_groups for name in text.split(SHARED)}) > 1:
        detail = "stages on different device groups are not run yet by this executor"
        found.append(Violation("run_stage_groups", detail, ("one device group",)))
    return found


def _schedule(order: RunOrder) -> list[Violation]:
    schedule = order.strategy.schedule
    if order.strategy.pp == 1 or schedule in SCHEDULES:
        return []
    detail = f"schedule {schedule.value} is not run by this executor"
    return [Violation("run_schedule", detail, tuple(f"schedule={name.value}" for name in SCHEDULES))]


def _offload(order: RunOrder) -> list[Violation]:
    offload, engine, zero = order.strategy.offload, order.situation.job.engine, order.strategy.zero
    if order.strategy.act_offload != "none":
        detail = f"act_offload={order.strategy.act_offload} is not run by this executor"
        return [Violation("run_act_offload", detail, ("act_offload=none",))]
    if offload == "none":
        return []
    if offload not in OFFLOADS:
        detail = f"offload={offload} is not run by this executor, which offloads all of a kind or nothing"
        return [Violation("run_offload", detail, tuple(f"offload={name}" for name in OFFLOADS))]
    if engine not in OFFLOADING:
        detail = f"offload={offload} is not run under engine {engine}"
        return [Violation("run_offload", detail, ("offload=none", *(f"--engine {e}" for e in OFFLOADING)))]
    if offload == "parameters" and zero < 2:
        detail = f"offload=parameters with zero {zero} is not run: only sharded parameters rest on the host"
        return [Violation("run_offload", detail, ("zero 2 or 3", "offload=optimizer"))]
    return []


def _options(order: RunOrder) -> list[Violation]:
    found = []
    for key, value in order.situation.engine.options.model_dump().items():
        honoured = HONOURED_OPTIONS.get(key)
        if honoured is not None and value not in honoured:
            detail = f"engine.{key}={_text(value)} is not run by this executor"
            nearest = tuple(f"--set engine.{key}={_text(each)}" for each in honoured)
            found.append(Violation(f"run_{key}", detail, nearest))
    job = order.situation.job
    found += _trainable(order)
    if job.options.kind not in KINDS:
        detail = f"job.kind={job.options.kind} needs a second model, which is not run yet by this executor"
        found.append(Violation("run_kind", detail, tuple(f"--set job.kind={kind}" for kind in KINDS)))
    return found


def _trainable(order: RunOrder) -> list[Violation]:
    trainable, options = order.situation.job.trainable, order.options
    nearest = f"--set job.trainable=lora:r={trainable.rank}"
    if trainable.kind == "qlora":
        detail = "job.trainable=qlora needs weights of 4 bits, which this executor does not make"
        return [Violation("run_trainable", detail, (nearest,))]
    if trainable.kind != "all" and options.factory:
        detail = (
            f"job.trainable={trainable.kind} is not applied to a factory's model, which freezes its own parts"
        )
        return [Violation("run_trainable", detail, ("--set job.trainable=all",))]
    asked = [name for name in ("adapters", "adapters_from", "lora_alpha") if getattr(options, name)]
    if asked and trainable.kind != "lora":
        detail = f"{asked[0]} is of LoRA adapters, and the job trains {trainable.kind}"
        return [Violation("run_adapters", detail, ("--set job.trainable=lora:r=16",))]
    return []


def _operators(order: RunOrder) -> list[Violation]:
    if order.options.factory:
        return []
    from planner.executor.model.support import unsupported_operators

    model = without_adapters(order.situation.model)
    unknown = unsupported_operators(model, predictions=order.predictions > 0)
    if not unknown:
        return []
    detail = f"{order.situation.model.name} has operators that cannot be built yet: {', '.join(unknown)}"
    return [Violation("run_operators", detail, ("a model without them", "--factory package.module:function"))]


def _factory(order: RunOrder) -> list[Violation]:
    if not order.options.factory:
        return []
    if order.options.verify:
        detail = "a factory's model has no small twin that could be verified"
        return [Violation("factory_verify", detail, ("--verify without --factory",))]
    from planner.executor.factory import factory_violations

    return list(factory_violations(order.options.factory, order.strategy))


def _optimizer(order: RunOrder) -> list[Violation]:
    from planner.executor.optimizers import optimizer_violations

    return list(optimizer_violations(order.situation.job, order.strategy))


def _devices(order: RunOrder, at_hand: int) -> list[Violation]:
    world = order.world_size
    if at_hand:
        if world <= at_hand:
            return []
        detail = f"the plan needs {world} devices, {at_hand} GPUs are at hand"
        return [Violation("run_devices", detail, (f"a plan for {at_hand} devices or fewer",))]
    device = order.situation.cluster.device
    if device.architecture != "cpu" and not order.options.verify:
        # Processes of the whole model on the host: slow where it fits, out of memory where it does not.
        detail = f"the plan is for {world} {device.title}, and no GPU is at hand"
        nearest = (f"a plan made with --cluster cpu:{min(world, MAX_CPU_PROCESSES)}", "--verify")
        return [Violation("run_devices", detail, nearest)]
    if world <= MAX_CPU_PROCESSES:
        return []
    detail = (
        f"the plan needs {world} processes and no GPU is at hand; {MAX_CPU_PROCESSES} processes run on a CPU"
    )
    return [Violation("run_devices", detail, (f"a plan for {MAX_CPU_PROCESSES} devices or fewer",))]


def _host_memory(order: RunOrder, devices: int | None) -> list[Violation]:
    """Processes on a CPU that need more than the host has would take it down; a GPU only says that it is full."""
    at_hand = count_devices() if devices is None else devices
    if at_hand or order.options.verify or order.options.factory:
        return []
    prediction = evaluate(order.situation, order.strategy)
    if prediction.verdict != "does_not_fit":
        return []
    memory = prediction.memory
    detail = (
        f"a process needs {format_bytes(memory.device_used_bytes)}, its share of this host's memory is "
        f"{format_bytes(memory.capacity_bytes)}"
    )
    return [Violation("run_memory", detail, ("a smaller model or batch", "--verify"))]


def _precision(order: RunOrder, at_hand: int) -> list[Violation]:
    precision = order.situation.job.precision
    if precision not in PRECISIONS:
        detail = f"precision {precision.value} is not run by this executor"
        return [Violation("run_precision", detail, tuple(f"--precision {p.value}" for p in PRECISIONS))]
    if precision is Precision.TF32 and not at_hand:
        detail = "precision tf32 exists on GPUs only, and none is at hand"
        return [Violation("run_precision", detail, ("--precision fp32",))]
    return []


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
