"""What a job trains: everything, low-rank adapters beside frozen weights, or all but the vision tower."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from cost_models.errors import InvalidJob

FORMS: Final = ("all", "lora:r=16", "lora:r=16,targets=q+v", "qlora:r=16,storage=uint8", "frozen:vision")
MAX_RANK: Final = 65_536
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}")


@dataclass(frozen=True, slots=True)
class Trainable:
    """`kind` of training; of adapters their rank, the linears they stand beside (none named: all of a block).

    `storage` is the type in which quantised weights lie: `compute` as if they were of the compute dtype, which FSDP can
    divide, or `uint8`, which it cannot.
    """

    kind: Literal["all", "lora", "qlora", "frozen"] = "all"
    rank: int = 0
    targets: tuple[str, ...] = ()
    storage: Literal["compute", "uint8"] = "compute"


ALL: Final = Trainable()


def parse_trainable(text: str) -> Trainable:
    """A Trainable from its text form; raises InvalidJob with the legal forms."""
    kind, _, rest = text.strip().partition(":")
    if text.strip() == "all":
        return ALL
    if text.strip() == "frozen:vision":
        return Trainable("frozen")
    pairs = [part.partition("=") for part in rest.split(",")]
    values = {key: value for key, _, value in pairs}
    allowed = {"lora": {"r", "targets"}, "qlora": {"r", "targets", "storage"}}.get(kind, set())
    rank, storage = values.get("r", ""), values.get("storage", "compute")
    targets = tuple(filter(None, values.get("targets", "").split("+")))
    good = (
        len(values) == len(pairs)
        and set(values) <= allowed
        and re.fullmatch(r"[0-9]{1,5}", rank) is not None
        and 1 <= int(rank) <= MAX_RANK
        and all(_NAME.fullmatch(name) for name in targets)
    )
    if not good or storage not in ("compute", "uint8"):
        raise InvalidJob(
            f"job.trainable={text:.80} is not known; write one of {', '.join(FORMS)}",
            pointer="/job/options/job.trainable",
            allowed=FORMS,
        )
    found: Literal["lora", "qlora"] = "qlora" if kind == "qlora" else "lora"
    return Trainable(found, int(rank), targets, "uint8" if storage == "uint8" else "compute")
