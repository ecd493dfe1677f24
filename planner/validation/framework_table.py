"""The table of frameworks that published runs name: the engine nearest to each, and what its recipes set."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cost_models.specs.job import Scalar
from planner.validation.programs import LITGPT, TORCHTUNE

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

PRECISION_AWARE: Final[Options] = {"engine.moment_dtype": "bf16", "engine.master_dtype": "remainder"}
"""Bridge's recipes of DeepSeek-V3's kind: bf16 moments, and fp32 main weights as what bf16 weights lack of them."""

_BRIDGE: Final[Options] = {
    "engine.grad_dtype": "bf16",
    "engine.tp_comm_overlap": True,
    "engine.fused_cross_entropy": True,
    "engine.cross_entropy_impl": "te",
}
"""Megatron-Bridge and NeMo performance recipes: bf16 gradient reduction, user buffers, fused cross entropy."""

_LAUNCHER: Final[Options] = {**_BRIDGE, "engine.fused_cross_entropy": False}
"""Recipes of NeMo-Framework-Launcher, launcher_scripts/conf/training: bf16 gradients, user buffers, no fused loss."""

NARROW_PARAMETERS: Final[Options] = {"engine.fp8_param_gather": True}
"""NeMo's and Bridge's recipes in fp8 and mxfp8: parameters are narrow themselves (NVIDIA/dgxc-benchmarking,
llama3.1/configure.sh: model.fp8_params; NeMo's bf16_with_fp8_mixed and Bridge's bf16_with_mxfp8_mixed)."""

NARROW_STATES: Final[Options] = {"engine.moment_dtype": "bf16", "engine.master_dtype": "bf16"}
"""NVIDIA/dgxc-benchmarking, nemotron/nemotron4-340b-synth.yaml of 24.11: distributed_fused_adam with dtype bf16."""

ONE_COPY: Final[Options] = {"engine.fp8_weight_copies": 1}
"""Tensor-wise scaling on Blackwell multiplies both ways from one copy (Transformer Engine, non-TN products)."""

BLACKWELL: Final = ("B200", "B300", "GB200", "GB300")

GRAPHS: Final = "bridge-2026-graphs"
EAGER: Final = "bridge-eager"
"""Generation of mixtures in Megatron-Bridge whose row names neither CUDA graphs nor a fused dispatcher."""

MEGATRON_2022: Final[Options] = {
    **_NO_OVERLAP,
    "engine.gradient_accumulation_fusion": False,
    "engine.attention": "unfused",
    "engine.scatter_gather_p2p": True,
}
"""Megatron-LM before FlashAttention: scores materialised in a fused softmax, gradients reduced after backward."""

_MEGATRON_FUSED: Final[Options] = {**MEGATRON_2022, "engine.gradient_accumulation_fusion": True}
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

_COMPOSER: Final[Options] = {**_FOUNDRY, "engine.grad_dtype": "bf16", "engine.logit_metrics": 2}
"""Composer of 2023 reduces gradients in the dtype of its gathered parameters, in mode DEFAULT too until October
(composer/trainer/mosaic_fsdp.py, get_mixed_precision), and computes two cross entropies for its log."""

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
    ("Megatron-Bridge", Framework("megatron", _BRIDGE, generation="bridge-2026")),
    (
        "Megatron-DeepSpeed",
        Framework("deepspeed", _MEGATRON_DEEPSPEED, generation="megatron-deepspeed-2022"),
    ),
    ("Megatron-LM 2022", Framework("megatron", _MEGATRON_FUSED, generation="megatron-2022")),
    ("Megatron-LM 2021", Framework("megatron", MEGATRON_2022, generation="megatron-2022")),
    ("Megatron-LM 2023", Framework("megatron", _MEGATRON_2023, generation="megatron-2025")),
    ("Megatron-Core CI", Framework("megatron", _NO_OVERLAP, generation="megatron-tests")),
    ("NeMo 24.07", Framework("megatron", _LAUNCHER, generation="nemo-2024")),
    ("NeMo 24", Framework("megatron", _BRIDGE, generation="nemo-2024")),
    ("NeMo", Framework("megatron", _BRIDGE, generation="nemo-2025")),
    ("MaxText", Framework("", nearest="engine MaxText")),
    ("Pax", Framework("", nearest="engine PaxML")),
    ("ModelZoo", Framework("megatron", _BRIDGE, generation="megatron-2025")),
    ("Megatron", Framework("megatron", {"engine.tp_comm_overlap": True}, generation="megatron-2025")),
    ("MegaScale", Framework("megatron", generation="megatron-2025")),
    ("torchtitan", Framework("torchtitan", _FLASH2)),
    ("KempnerForge", Framework("torchtitan", nearest="as torchtitan")),
    ("HF Trainer + DeepSpeed", Framework("deepspeed", _TRAINER, zero=3)),
    ("fms-fsdp", Framework("fsdp1", {**_FLASH2, "engine.compile": True, "engine.grad_dtype": "bf16"})),
    ("llm-foundry", Framework("fsdp1", _COMPOSER)),
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
