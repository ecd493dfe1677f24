"""Torch's own memory tracker of FSDP2, with the peak of every phase."""

from enum import StrEnum
from typing import Any

from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

TOTAL = "Total"


class OraclePhase(StrEnum):
    """Where a step is."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer_step"


Place = tuple[OraclePhase, int]
"""A phase, and the unit that a backward pass runs through."""


class PhaseTracker(FSDPMemTracker):  # type: ignore[no-untyped-call]
    """Counts live storages; `peaks` holds bytes by torch's category at the peak of each phase of the step.

    A backward pass is told apart by the unit it runs through, counted from the nearer end (-1: the head, 0: the
    embedding), so that equal places of a shallow and a deep model can be compared.
    """

    def __init__(self, module: nn.Module, optimizer: Optimizer) -> None:
        super().__init__(module, optimizer)
        self.peaks: dict[Place, dict[str, float]] = {}
        self._went_back = False
        self._unit = 0
        units = [each for each in module.modules() if isinstance(each, FSDPModule) and each is not module]
        self._units = {
            unit: index if 2 * index < len(units) else index - len(units) for index, unit in enumerate(units)
        }

    def start_step(self) -> None:
        """Forget the last step's peaks."""
        self.reset_mod_stats()
        self.peaks = {}
        self._went_back = False

    def _fsdp_state_pre_forward(self, fsdp_mod: Any, orig: Any) -> Any:
        inner = super()._fsdp_state_pre_forward(fsdp_mod, orig)

        def outer(*args: Any, **kwargs: Any) -> Any:
            if not self._mod_tracker.is_bw:  # the next micro-batch
                self._went_back = False
            return inner(*args, **kwargs)

        return outer

    def _fsdp_param_group_pre_backward(self, fsdp_mod: Any, orig: Any) -> Any:
        inner = super()._fsdp_param_group_pre_backward(fsdp_mod, orig)

        def outer(*args: Any, **kwargs: Any) -> None:
            self._went_back = True
            self._unit = self._units.get(fsdp_mod, 0)
            inner(*args, **kwargs)

        return outer

    def _phase(self) -> OraclePhase:
        if self._in_opt:
            return OraclePhase.OPTIMIZER_STEP
        if self._went_back:
            return OraclePhase.BACKWARD
        inside = len(self._mod_tracker.parents) > 1
        return OraclePhase.FORWARD if inside and not self._mod_tracker.is_bw else OraclePhase.LOSS

    def _update_peak_stats(self, peak_state: Any) -> None:
        phase = self._phase()
        place = (phase, self._unit if phase is OraclePhase.BACKWARD else 0)
        for snapshot in self._curr_mem_snap.values():
            highest = self.peaks.get(place)
            if highest is None or highest[TOTAL] < snapshot[TOTAL]:
                named = {getattr(key, "value", key): float(size) for key, size in snapshot.items()}
                self.peaks[place] = named
