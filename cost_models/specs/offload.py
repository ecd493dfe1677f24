"""What a strategy keeps in the host's memory instead of the device's: optimizer states, parameters, activations."""

import math
import re
from dataclasses import dataclass
from typing import Final

from cost_models.errors import IllegalStrategy, Violation
from cost_models.suggest import did_you_mean

FORMS: Final = ("none", "optimizer", "optimizer:0.5", "parameters")
ACTIVATION_FORMS: Final = ("none", "checkpoints", "blocks", "blocks:12", "modules:core_attn+attn_proj")
MOST_MODULES: Final = 16
ALL_BLOCKS: Final = 10**9
"""More blocks than any model has: all of them."""
_SHARE: Final = re.compile(r"[0-9]{0,3}\.?[0-9]{1,9}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_COUNT: Final = re.compile(r"[0-9]{1,8}")


@dataclass(frozen=True, slots=True)
class Offload:
    """Share of the optimizer states in host memory, and whether parameters and gradients rest there too.

    `parameters` keeps parameters, gradients and optimizer states on the host and brings a layer's parameters to the
    device while it runs. The host then does the optimizer step for what it holds (Ren et al. 2021, ZeRO-Offload).
    """

    optimizer: float = 0.0
    parameters: bool = False

    @property
    def kind(self) -> str:
        """`none`, `optimizer` or `parameters`."""
        return "parameters" if self.parameters else "optimizer" if self.optimizer else "none"

    def text(self) -> str:
        """The contract's text form."""
        if self.kind == "optimizer" and self.optimizer < 1.0:
            return f"optimizer:{self.optimizer:g}"
        return self.kind


NO_OFFLOAD: Final = Offload()


def parse_offload(text: str) -> Offload:
    """An Offload from its text form; raises IllegalStrategy with the legal forms."""
    kind, colon, share = text.strip().partition(":")
    if kind in ("none", "parameters") and not colon:
        return Offload(1.0, parameters=True) if kind == "parameters" else Offload()
    if kind == "optimizer":
        part = _share(share) if colon else 1.0
        if part is not None:
            return Offload(part)
    raise IllegalStrategy((_unknown("offload", text, FORMS),))


def _unknown(key: str, text: str, forms: tuple[str, ...]) -> Violation:
    """A text that is none of the forms, with the closest kind."""
    kinds = dict.fromkeys(form.partition(":")[0] for form in forms)
    hint = did_you_mean(text.partition(":")[0], kinds).strip()
    detail = f"{key}={text!r:.80} is not known{f' ({hint})' if hint else ''}"
    return Violation(f"{key}_syntax", detail, tuple(f"{key}={form}" for form in forms))


def _share(text: str) -> float | None:
    """A share above 0 and at most 1; None for anything else."""
    share = float(text) if _SHARE.fullmatch(text) else math.nan
    return share if 0.0 < share <= 1.0 else None


@dataclass(frozen=True, slots=True)
class ActivationOffload:
    """What rests in the host's memory between a forward and its backward.

    `checkpoints`: the inputs of fully recomputed blocks. `blocks`: all that so many blocks save; the last blocks'
    copies are still on their way when the backward begins, so the first ones of the model are meant, and each block is
    priced as that share of one. `modules`: what some modules of every block save (module_offload.py).
    """

    blocks: int = 0
    checkpoints: bool = False
    modules: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`none`, `checkpoints`, `blocks` or `modules`."""
        if self.modules:
            return "modules"
        return "checkpoints" if self.checkpoints else "blocks" if self.blocks else "none"

    def share(self, num_blocks: int) -> float:
        """Share of a model's blocks whose activations are moved."""
        return min(self.blocks / num_blocks, 1.0)

    def text(self) -> str:
        """The strategy's text form."""
        if self.modules:
            return f"modules:{'+'.join(self.modules)}"
        return f"blocks:{self.blocks}" if 0 < self.blocks < ALL_BLOCKS else self.kind


NO_ACTIVATIONS: Final = ActivationOffload()


def parse_act_offload(text: str) -> ActivationOffload:
    """An ActivationOffload from its text form; raises IllegalStrategy with the legal forms."""
    kind, colon, count = text.strip().partition(":")
    if kind in ("none", "checkpoints", "blocks") and not colon:
        return ActivationOffload(ALL_BLOCKS if kind == "blocks" else 0, kind == "checkpoints")
    if kind == "blocks" and _COUNT.fullmatch(count) and int(count):
        return ActivationOffload(int(count))
    names = tuple(sorted(count.split("+")))
    if kind == "modules" and all(_NAME.fullmatch(name) for name in names) and len(names) <= MOST_MODULES:
        return ActivationOffload(modules=tuple(dict.fromkeys(names)))
    raise IllegalStrategy((_unknown("act_offload", text, ACTIVATION_FORMS),))
