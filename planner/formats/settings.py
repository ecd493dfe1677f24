"""What a framework's settings say, in this planner's own nouns."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest, Optimizer, Precision
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import StrategyRequest

USUAL_MICRO_BATCH = 1


@dataclass(frozen=True, slots=True)
class Beside:
    """What settings leave to others: the devices they run on, and model and job where a framework keeps them elsewhere.

    `job` holds keys of a JobRequest that were stated beside the file.
    """

    devices: int
    model: ModelSpec | None = None
    job: Mapping[str, object] = field(default_factory=dict)
    engine_version: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Model, job and strategy of one run of a framework.

    `assumed` names what the settings leave to the framework's default or to files that are not at hand; `ignored`
    what was read and changes neither memory nor time here; `unknown` what the reader does not know.
    """

    framework: str
    model: ModelSpec
    job: JobRequest
    strategy: StrategyRequest
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@contextmanager
def one_sentence(framework: str) -> Iterator[None]:
    """Say values that no job or strategy may have in one sentence: BadInput instead of pydantic's ValidationError."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])[:80]
        message = str(first["msg"]).removeprefix("Value error, ")[:200]
        raise BadInput(
            f"the settings of {framework} come to {key} {first['input']!r:.60}: {message}; change what they say",
            pointer=f"/{key.replace('.', '/')}",
        ) from None


def model_beside(beside: Beside, why: str) -> ModelSpec:
    """The model that was stated beside the settings; raises BadInput saying why it is needed."""
    if beside.model is None:
        raise BadInput(f"{why}; give --model", pointer="/model")
    return beside.model


def beside_job(
    beside: Beside,
    *,
    engine: str,
    global_batch: int,
    precision: Precision,
    optimizer: Optimizer,
    options: dict[str, Any],
) -> JobRequest:
    """A job of settings that do not hold the sequence length, which stands beside them."""
    seq_len = beside.job.get("seq_len")
    return JobRequest(
        seq_len=seq_len if isinstance(seq_len, int) else None,
        global_batch=global_batch,
        precision=precision,
        engine=f"{engine}@{beside.engine_version}" if beside.engine_version else engine,
        optimizer=optimizer,
        options=options,
    )


def batch_of(
    sizes: tuple[int, int, int], names: tuple[str, str, str], dp: int, beside: Beside, assumed: list[str]
) -> tuple[int, int]:
    """Micro-batch and global batch of (micro, accumulation, global), 0 where absent; the batch beside them wins.

    Raises BadInput where global is not micro x accumulation x data-parallel ranks.
    """
    micro, steps, batch = sizes
    stated = beside.job.get("global_batch")
    if isinstance(stated, int):
        steps, batch = 0 if batch and batch != stated else steps, stated
    if batch and not micro:
        micro = batch // (max(steps, 1) * dp) if steps else USUAL_MICRO_BATCH
        if not steps:
            assumed.append(f"{names[0]}={micro}")
    if not micro:
        micro = USUAL_MICRO_BATCH
        assumed.append(f"{names[0]}={micro}")
    if not batch:
        if not steps:
            assumed.append(f"{names[1]}=1")
        return micro, micro * max(steps, 1) * dp
    if steps and batch != micro * steps * dp:
        whole = micro * steps * dp
        raise BadInput(
            f"{names[2]} {batch} is not {names[0]} {micro} x {names[1]} {steps} x {dp} data-parallel ranks = {whole}; "
            f"use {names[2]} {whole}, or change one of the others",
            pointer=f"/{names[2]}",
        )
    if batch % (micro * dp):
        low = batch // (micro * dp) * micro * dp
        near = " or ".join(str(n) for n in (low, low + micro * dp) if n)
        raise BadInput(
            f"{names[2]} {batch} is not divisible by {names[0]} {micro} x {dp} data-parallel ranks; use {near}",
            pointer=f"/{names[2]}",
        )
    return micro, batch
