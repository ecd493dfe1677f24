"""What a strategy keeps in the host's memory instead of the device's: nothing, optimizer states, or all parameters."""

import math
import re
from dataclasses import dataclass
from typing import Final

from cost_models.errors import IllegalStrategy, Violation

FORMS: Final = ("none", "optimizer", "optimizer:0.5", "parameters")
_SHARE: Final = re.compile(r"[0-9]{0,3}\.?[0-9]{1,9}")


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
    raise IllegalStrategy(
        (
            Violation(
                "offload_syntax", f"offload={text!r:.80} is not known", tuple(f"offload={f}" for f in FORMS)
            ),
        )
    )


def _share(text: str) -> float | None:
    """A share above 0 and at most 1; None for anything else."""
    share = float(text) if _SHARE.fullmatch(text) else math.nan
    return share if 0.0 < share <= 1.0 else None
