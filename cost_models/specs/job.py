"""The training job: what a user asks for (`JobRequest`) and what it comes to with every default filled (`Job`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeVar

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from cost_models.errors import InvalidJob
from cost_models.specs.base import Frozen
from cost_models.specs.counts import count_parameters
from cost_models.specs.model import ModelSpec
from cost_models.specs.trainable import ALL, Trainable, parse_trainable
from cost_models.suggest import did_you_mean

T = TypeVar("T", bound=Frozen)

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr

MAX_BATCH = 10_000_000
MAX_SEQ_LEN = 100_000_000


class Precision(StrEnum):
    """Precision of the matrix multiplications."""

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"

    @property
    def activation_bytes(self) -> float:
        """Bytes of an activation: fp8 and fp4 recipes keep activations and weights in bf16."""
        return 4.0 if self in (Precision.FP32, Precision.TF32) else 2.0

    @property
    def gemm_bytes(self) -> float:
        """Bytes of a matrix-multiplication operand."""
        sizes = {Precision.FP8: 1.0, Precision.MXFP8: 1.03125, Precision.NVFP4: 0.5625}
        return sizes.get(self, self.activation_bytes)


class Optimizer(StrEnum):
    """Optimizers, by what they keep per parameter."""

    ADAMW = "adamw"
    ADAM8BIT = "adam8bit"
    SGD = "sgd"
    ADAFACTOR = "adafactor"
    MUON = "muon"


class JobRequest(Frozen):
    """What a user states; `options` are the command line's `--set` pairs (`job.…` and `engine.…`)."""

    seq_len: Annotated[StrictInt, Field(ge=1, le=MAX_SEQ_LEN)] | None = None
    global_batch: Annotated[StrictInt, Field(ge=1, le=MAX_BATCH)]
    precision: Precision = Precision.BF16
    engine: Annotated[StrictStr, Field(min_length=1, max_length=64)] = "megatron"
    optimizer: Optimizer = Optimizer.ADAMW
    options: Annotated[dict[StrictStr, Scalar], Field(max_length=64)] = {}


class JobOptions(Frozen):
    """Typed `job.…` options."""

    kind: Literal["pretrain", "sft", "dpo", "distill"] = "pretrain"
    """dpo: a frozen reference of the model itself runs forward beside it (both answers' sequences count in the batch);
    distill: a frozen teacher of `teacher_parameters` does."""
    teacher_parameters: Annotated[float, Field(ge=0.0, le=1e14)] = 0.0
    """Parameters of the teacher (distill), which is priced as so many times the model itself."""
    trainable: str = "all"
    train_mtp: bool = False
    decoder_seq_len: Annotated[int, Field(ge=1, le=MAX_SEQ_LEN)] | None = None
    image_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    moe_imbalance: Annotated[float, Field(ge=1.0, le=1024.0)] = 1.0
    moe_capacity_factor: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0
    moe_dispatcher: Literal["alltoall", "deepep", "hybridep"] = "alltoall"
    moe_dispatch_dtype: Literal["bf16", "fp8"] = "bf16"
    reserve_bytes: Annotated[float, Field(ge=0.0)] = 0.0
    max_oom_probability: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05


@dataclass(frozen=True, slots=True)
class Reference:
    """A frozen model beside the one that is trained, in multiples of that: its weights, and its forward passes.

    `keeps_logits` says whether what it predicts is kept until the loss's backward.
    """

    weights: float = 0.0
    forwards: float = 0.0
    keeps_logits: bool = False


NO_REFERENCE: Final = Reference()


@dataclass(frozen=True, slots=True)
class Job:
    """A job with every default filled, checked against its model. Positions are per sequence."""

    seq_len: int
    decoder_seq_len: int
    image_size: int
    global_batch: int
    precision: Precision
    optimizer: Optimizer
    engine: str
    engine_version: str
    options: JobOptions
    engine_options: Mapping[str, Scalar]
    trainable: Trainable = ALL
    reference: Reference = NO_REFERENCE

    def length_of(self, length: str) -> int:
        """Positions of a stack whose `length` names a job value (1 for images: positions are inside operators)."""
        return {"seq_len": self.seq_len, "decoder_seq_len": self.decoder_seq_len, "image_size": 1}[length]

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step (0 for vision models)."""
        return 0 if self.image_size else self.global_batch * self.seq_len


def resolve_job(request: JobRequest, model: ModelSpec) -> Job:
    """Check a request against its model and fill the defaults.

    Raises InvalidJob for a missing or superfluous sequence length, unknown or ill-typed options, and what this
    version does not model.
    """
    name, _, version = request.engine.partition("@")
    job_options, engine_options = split_options(request.options)
    options = parse_options(JobOptions, job_options, prefix="job")
    if model.is_vision:
        if request.seq_len is not None:
            raise InvalidJob(
                f"seq_len {request.seq_len} given, but {model.name} is a vision model; leave the sequence length out "
                "(the batch counts samples; use job.image_size for the input side)",
                pointer="/job/seq_len",
            )
    elif request.seq_len is None:
        raise InvalidJob(
            f"no sequence length for {model.name}; give --seq-len (tokens per sequence)",
            pointer="/job/seq_len",
        )
    seq_len = request.seq_len or 1
    trainable = parse_trainable(options.trainable)
    return Job(
        seq_len=seq_len,
        decoder_seq_len=options.decoder_seq_len or seq_len,
        image_size=(options.image_size or model.image_size) if model.is_vision else 0,
        global_batch=request.global_batch,
        precision=request.precision,
        optimizer=request.optimizer,
        engine=name,
        engine_version=version,
        options=options,
        engine_options=engine_options,
        trainable=trainable,
        reference=reference_of(options, model, trainable),
    )


def split_options(options: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], dict[str, Scalar]]:
    """`job.…` and `engine.…` options without their prefix; raises InvalidJob for any other prefix."""
    parts: dict[str, dict[str, Scalar]] = {"job": {}, "engine": {}}
    for key, value in options.items():
        prefix, _, rest = key.partition(".")
        if prefix not in parts or not rest:
            raise InvalidJob(
                f"unknown option {key!r}; options start with job. or engine. (as job.train_mtp=true or engine.{key})",
                pointer=f"/job/options/{key}",
            )
        parts[prefix][rest] = value
    return parts["job"], parts["engine"]


def parse_options(kind: type[T], options: Mapping[str, Scalar], *, prefix: str) -> T:
    """Typed options from untyped ones; raises InvalidJob naming the option, the value and what is allowed."""
    known = tuple(kind.model_fields)
    for key in options:
        if key not in known:
            hint = did_you_mean(key, known)
            raise InvalidJob(
                f"unknown option {prefix}.{key}; {hint}known: {', '.join(f'{prefix}.{k}' for k in known)}",
                pointer=f"/job/options/{prefix}.{key}",
                allowed=tuple(f"{prefix}.{k}" for k in known),
            )
    try:
        return kind.model_validate(dict(options), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"][:1])
        raise InvalidJob(
            f"option {prefix}.{key}={options.get(key)!s:.80} is not valid: {first['msg']}",
            pointer=f"/job/options/{prefix}.{key}",
        ) from None


def reference_of(options: JobOptions, model: ModelSpec, trainable: Trainable) -> Reference:
    """The frozen model that a job's kind runs beside the trained one.

    Preference optimisation scores the same sequences by the model as it was (Rafailov et al. 2023, equation 7); with
    adapters that is the model without them, which needs no weights of its own. A teacher's weights and work are taken
    in proportion to its parameters. Raises InvalidJob where a teacher is missing or superfluous.
    """
    teacher = options.teacher_parameters
    if (options.kind == "distill") != (teacher > 0.0):
        given = f"job.teacher_parameters={teacher:g}"
        raise InvalidJob(
            f"job.kind={options.kind} with {given}; "
            + (
                "give the teacher's parameters"
                if options.kind == "distill"
                else "leave it out or use distill"
            ),
            pointer="/job/options/job.teacher_parameters",
        )
    if options.kind == "dpo":
        return Reference(0.0 if trainable.kind in ("lora", "qlora") else 1.0, 1.0)
    if options.kind == "distill":
        share = teacher / count_parameters(model).parameters
        return Reference(share, share, keeps_logits=True)
    return NO_REFERENCE
