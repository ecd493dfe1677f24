"""Activations that rest in the host's memory between a forward and its backward: what leaves the device, what shows.

    shown = exposed(bytes / link, window)    window: the kernels of the block that the copy runs beside

`checkpoints`: inputs of fully recomputed blocks go down in the forward and come back before the block runs again.
`blocks`: all that a share f of the blocks saves does. While such a block runs its own tensors are on the device and a
neighbour's are on their way (a double buffer, as in Transformer Engine's cpu_offload and torchtune's
OffloadActivations), so 2 f a bytes stand beside it; the last block's stay, for its backward comes next. `modules`: the
same of what some modules of every block keep (module_offload.py), which the work comes with as its host bytes.
"""

from dataclasses import replace

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.host import HostRates
from cost_models.overlap import exposed
from cost_models.row_work import RowWork, inner
from cost_models.specs.offload import ActivationOffload

_DATA = TIME_CAUSES.index("dp_communication")


def offload_activations(
    work: RowWork, moved: ActivationOffload, num_blocks: int, host: HostRates, overlap: float
) -> RowWork:
    """The work of rows (…, rows, U) with what a strategy moves to the host; `overlap` is the window's usable share."""
    if moved.checkpoints:
        link_s = 2.0 * host.link_seconds(work.full_saved_bytes)
        shown_s = exposed(link_s, window_of(work), efficiency=overlap, interference=0.0)
        return _without_checkpoints(with_copies(work, shown_s, work.full_saved_bytes))
    if moved.blocks or moved.modules:
        share, whole = (
            (1.0, work.host_bytes) if moved.modules else (moved.share(num_blocks), work.saved_bytes)
        )
        link_s = host.link_seconds(whole)
        down_s, up_s = (
            exposed(link_s, window_s, efficiency=overlap, interference=0.0)
            for window_s in (work.forward_parts_s[0], work.backward_parts_s[0])
        )
        return _without(work, share * inner(whole), share * inner(down_s), share * inner(up_s))
    return work


def window_of(work: RowWork) -> Array:
    """Seconds (rows, U) of the kernels that an input's way down and up may run beside."""
    window_s: Array = work.forward_parts_s[0] + work.backward_parts_s[0]
    return window_s


def with_copies(work: RowWork, shown_s: Array, moved_bytes: Array) -> RowWork:
    """Recomputing a row also shows so many seconds (rows, B) of its input's way to the host and back."""
    spared = work.spared_parts_s.copy()
    spared[_DATA] -= inner(shown_s)
    return replace(work, spared_parts_s=spared, host_bytes=work.host_bytes + inner(moved_bytes))


def _without_checkpoints(work: RowWork) -> RowWork:
    """Inputs of recomputed rows are on the device while the row runs alone."""
    kept = inner(work.full_saved_bytes)
    passes = work.passes.copy()
    passes[2:4] += kept
    return replace(
        work,
        full_saved_bytes=work.full_saved_bytes - kept,
        full_transient_bytes=work.full_transient_bytes + kept,
        passes=passes,
    )


def _without(work: RowWork, moved: Array, down_s: Array, up_s: Array) -> RowWork:
    """Blocks without some of what they save; a full recompute would free nothing of it, so it changes nothing."""
    forward, backward = work.forward_parts_s.copy(), work.backward_parts_s.copy()
    spared, passes = work.spared_parts_s.copy(), work.passes.copy()
    forward[_DATA] += down_s
    spared[_DATA] += down_s
    backward[_DATA] += up_s
    transient = work.transient_bytes + 2.0 * moved
    transient[-1] += moved.max(0)
    passes[:4] += 2.0 * moved
    passes[4, -1] += moved.max(0)
    return replace(
        work,
        forward_parts_s=forward,
        backward_parts_s=backward,
        spared_parts_s=spared,
        saved_bytes=work.saved_bytes - moved,
        transient_bytes=transient,
        full_saved_bytes=work.saved_bytes - moved,
        full_transient_bytes=transient,
        passes=passes,
        host_bytes=moved,
    )
