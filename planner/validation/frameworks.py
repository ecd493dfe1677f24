"""Framework names of published runs -> engine, options, and what the source leaves to a default."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cost_models.specs.job import Optimizer, Precision, Scalar
from planner.validation.programs import (
    LITGPT,
    PROGRAMS,
    TORCHTUNE,
    engine_of_program,
    is_program,
    is_pure,
    program_options,
)
from planner.validation.rows import Run, Unusable

Options = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Framework:
    """How runs of one framework are read: the engine nearest to it and the options its recipes set.

    `nearest` says in words what is read as what, where the engine is not the framework itself.
    """

    engine: str
    options: Options = field(default_factory=dict)
    nearest: str = ""
    zero: int | None = None  # the stage of the framework's recipes, where a row names none
    generation: str = "auto"  # whose constants price it (profiles/calibration/generations.toml)


_NO_OVERLAP: Final[Options] = {"engine.overlap_grad_reduce": False, "engine.overlap_param_gather": False}

_SIMUMAX: Final[Options] = {
    **_NO_OVERLAP,
    "engine.fused_cross_entropy": True,
    "engine.cross_entropy_impl": "te",
}
"""SimuMax's fork: --cross-entropy-fusion-impl te (its docs/strategy.md)."""

_PRECISION_AWARE: Final[Options] = {"engine.moment_dtype": "bf16", "engine.master_dtype": "remainder"}
"""Bridge's recipes of DeepSeek-V3's kind: bf16 moments, and fp32 main weights as what bf16 weights lack of them."""

_BRIDGE: Final[Options] = {
    "engine.grad_dtype": "bf16",
    "engine.tp_comm_overlap": True,
    "engine.fused_cross_entropy": True,
    "engine.cross_entropy_impl": "te",
}
"""Megatron-Bridge and NeMo performance recipes: bf16 gradient reduction, user buffers, fused cross entropy."""

_NARROW_PARAMETERS: Final[Options] = {"engine.fp8_param_gather": True}
"""NeMo's and Bridge's recipes in fp8 and mxfp8: parameters are narrow themselves (NVIDIA/dgxc-benchmarking,
llama3.1/configure.sh: model.fp8_params; NeMo's bf16_with_fp8_mixed and Bridge's bf16_with_mxfp8_mixed)."""

_NARROW_STATES: Final[Options] = {"engine.moment_dtype": "bf16", "engine.master_dtype": "bf16"}
"""NVIDIA/dgxc-benchmarking, nemotron/nemotron4-340b-synth.yaml of 24.11: distributed_fused_adam with dtype bf16."""

_ONE_COPY: Final[Options] = {"engine.fp8_weight_copies": 1}
"""Tensor-wise scaling on Blackwell multiplies both ways from one copy (Transformer Engine, non-TN products)."""

_BLACKWELL: Final = ("B200", "B300", "GB200", "GB300")

_BRIDGE_2026: Final[Options] = {**_BRIDGE, "engine.expandable_segments": True}
"""Every performance recipe of Megatron-Bridge 0.6 sets PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
(megatron/bridge/perf_recipes)."""

GRAPHS: Final = "bridge-2026-graphs"
EAGER: Final = "bridge-eager"
"""Generation of mixtures in Megatron-Bridge whose row names neither CUDA graphs nor a fused dispatcher."""

_MEGATRON_2022: Final[Options] = {
    **_NO_OVERLAP,
    "engine.gradient_accumulation_fusion": False,
    "engine.attention": "unfused",
    "engine.scatter_gather_p2p": True,
}
"""Megatron-LM before FlashAttention: scores materialised in a fused softmax, gradients reduced after backward."""

_MEGATRON_FUSED: Final[Options] = {**_MEGATRON_2022, "engine.gradient_accumulation_fusion": True}
"""The same from the spring of 2022 on, when products began to add weight gradients up."""

_MEGATRON_2023: Final[Options] = {**_NO_OVERLAP, "engine.attention": "flash2"}
"""Megatron-LM with FlashAttention and sequence parallelism, nothing overlapped but sends between chunks."""

_FLASH2: Final[Options] = {"engine.attention": "flash2"}

_INTERNEVO: Final[Options] = {
    "engine.gradient_accumulation_fusion": False,
    "engine.grad_dtype": "bf16",
    "engine.overlap_param_gather": False,
    "engine.broadcast_params": True,
}
"""InternEvo runs FlashAttention 2, on A100 the fastest, reduces gradients in the dtype of its parameters, and sends
parameters round after the step."""

_FOUNDRY: Final[Options] = {**_FLASH2, "engine.compile": True, "engine.fused_cross_entropy": True}
"""llm-foundry 2023: FlashAttention 1 and 2 with their fused cross entropy, low-precision norms."""

_MEGATRON_DEEPSPEED: Final[Options] = {"engine.modules": "megatron", "engine.attention": "unfused"}
"""Megatron-DeepSpeed of 2022: Megatron-LM's kernels before FlashAttention, DeepSpeed's states and pipeline."""

_TRAINER: Final[Options] = {
    **_FLASH2,
    "engine.modules": "transformers",
    "engine.logits_fp32": False,
    "engine.shifted_logits": True,
}
"""The transformers library's Trainer, Qwen's finetuning script: ZeRO-3, modules that come with the checkpoint, whose
loss shifts the logits as they are."""

_FUSED_NORMS: Final[Options] = {"engine.compile": True}
"""Batch normalisation with its addition and ReLU in one kernel: MXNet and Paddle recipes, XLA."""

_EXAMPLES_BERT: Final[Options] = {"engine.compile": True, "engine.attention": "unfused"}
"""DeepLearningExamples' BERT: Apex's fused normalisation and scripted GELU, scores materialised."""

FRAMEWORKS: Final[tuple[tuple[str, Framework], ...]] = (
    ("SimuMax fork", Framework("megatron", _SIMUMAX, generation="simumax-2025")),
    ("Megatron-Bridge / NeMo 25", Framework("megatron", _BRIDGE, generation="nemo-2025")),
    ("Megatron-Bridge", Framework("megatron", _BRIDGE_2026, generation="bridge-2026")),
    (
        "Megatron-DeepSpeed",
        Framework("deepspeed", _MEGATRON_DEEPSPEED, generation="megatron-deepspeed-2022"),
    ),
    ("Megatron-LM 2022", Framework("megatron", _MEGATRON_FUSED, generation="megatron-2022")),
    ("Megatron-LM 2021", Framework("megatron", _MEGATRON_2022, generation="megatron-2022")),
    ("Megatron-LM 2023", Framework("megatron", _MEGATRON_2023, generation="megatron-2025")),
    ("Megatron-Core CI", Framework("megatron", _NO_OVERLAP, generation="megatron-tests")),
    ("NeMo 24", Framework("megatron", _BRIDGE, generation="nemo-2024")),
    ("NeMo", Framework("megatron", _BRIDGE, generation="nemo-2025")),
    ("MaxText", Framework("", nearest="engine MaxText")),
    ("Pax", Framework("", nearest="engine PaxML")),
    ("ModelZoo", Framework("megatron", _BRIDGE, generation="megatron-2025")),
    ("Megatron", Framework("megatron", {"engine.tp_comm_overlap": True}, generation="megatron-2025")),
    ("MegaScale", Framework("megatron", generation="megatron-2025")),
    ("torchtitan", Framework("torchtitan", _FLASH2)),
    ("HF Trainer + DeepSpeed", Framework("deepspeed", _TRAINER, zero=3)),
    ("fms-fsdp", Framework("fsdp1", {**_FLASH2, "engine.compile": True, "engine.grad_dtype": "bf16"})),
    ("llm-foundry", Framework("fsdp1", _FOUNDRY)),
    (
        "InternEvo",
        Framework("megatron", _INTERNEVO, "InternEvo with ZeRO-1 as megatron", generation="internevo-2023"),
    ),
    ("torchtune", Framework(TORCHTUNE)),
    ("litgpt thunder", Framework(LITGPT, nearest="what Thunder keeps, with nvFuser, as eager modules")),
    ("litgpt", Framework(LITGPT)),
    ("PyTorch DDP (DALI)", Framework("ddp", generation="examples-2020")),
    (
        "PyTorch DDP (synthetic data)",
        Framework("ddp", {"engine.channels_last": False}, generation="examples-2020"),
    ),
    ("PyTorch DDP", Framework("ddp", _EXAMPLES_BERT, generation="examples-2020")),
    ("MXNet", Framework("ddp", _FUSED_NORMS, "MXNet with Horovod as ddp", generation="mxnet-2020")),
    ("PaddleNLP", Framework("megatron", _MEGATRON_2023, "ZeRO-2 as ZeRO-1", generation="paddle-2022")),
    ("PaddlePaddle", Framework("ddp", _FUSED_NORMS, "Paddle as ddp", generation="paddle-2022")),
    ("TensorFlow 2", Framework("ddp", _EXAMPLES_BERT, "TensorFlow 2 as ddp", generation="tensorflow-2020")),
    (
        "TensorFlow",
        Framework("ddp", _FUSED_NORMS, "TensorFlow with XLA as ddp", generation="tensorflow-2020"),
    ),
    (
        "DeepSpeed",
        Framework("deepspeed", {"engine.modules": "transformers"}, "as the transformers library's modules"),
    ),
    ("Llama 3's trainer", Framework("megatron", nearest="as Megatron", generation="megatron-2025")),
    ("llm.c", Framework("ddp", _FOUNDRY, nearest="CUDA kernels of its own as a compiled program")),
    ("GPT-2 trainer", Framework("ddp", {**_FLASH2, "engine.compile": True}, nearest="as ddp")),
    ("FlashAttention repository", Framework("ddp", _FOUNDRY, nearest="its trainer as ddp")),
    ("FSDP2", Framework("fsdp2", nearest="as fsdp2, whatever trains")),
    ("FSDP", Framework("fsdp1", nearest="as fsdp1, whatever trains")),
    ("DDP", Framework("ddp", nearest="as ddp, whatever trains")),
)
"""First match of the framework's name wins."""

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


def options_of(run: Run, framework: Framework) -> dict[str, Scalar]:
    """Options of the framework's recipes, then what the row's own words say."""
    options = {"engine.generation": framework.generation, **framework.options}
    notes, hint = run.text("notes"), run.text("recompute_hint")
    words = f"{notes}; {hint}"
    if framework.engine == "megatron":
        if run.text("precision").lower().startswith("fp16") and framework.generation != "megatron-2022":
            # fp16 runs of Megatron-LM predate FlashAttention
            options |= {**_MEGATRON_2022, "engine.generation": "megatron-2022"}
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
    if "expandable_segments:True" in run.text("notes"):
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
        found |= _NARROW_PARAMETERS
        tensor_wise = precision_of_run(run) is Precision.FP8
        found |= _ONE_COPY if tensor_wise and run.text("gpu").startswith(_BLACKWELL) else {}
    if run.text("source_locator") == "Nemotron4-340B README 24.11":
        found |= _NARROW_STATES
    if "bridge" in name and run.text("model").startswith(("deepseek-v3", "kimi", "moonlight")):
        found |= _PRECISION_AWARE
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
