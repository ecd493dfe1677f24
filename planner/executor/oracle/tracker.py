"""Torch's own memory tracker of FSDP2, with the peak of every phase."""

from enum import StrEnum
from typing import Any

from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.optim import Optimizer

TOTAL = "Total"


class OraclePhase(StrEnum):
    """Where a step is."""

    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer_step"


class PhaseTracker(FSDPMemTracker):  # type: ignore[no-untyped-call]
    """Counts live storages; `peaks` holds, for each phase of the step, bytes by torch's category at its peak."""

    def __init__(self, module: nn.Module, optimizer: Optimizer) -> None:
        super().__init__(module, optimizer)
        self.peaks: dict[OraclePhase, dict[str, float]] = {}
        self._went_back = False

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
        for snapshot in self._curr_mem_snap.values():
            highest = self.peaks.get(phase)
            if highest is None or highest[TOTAL] < snapshot[TOTAL]:
                named = {getattr(key, "value", key): float(size) for key, size in snapshot.items()}
                self.peaks[phase] = named
