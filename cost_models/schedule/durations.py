"""Seconds of every chunk of a pipeline, and their rounding to multiples of a power of two."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PipelineDurations:
    """Seconds per micro-batch of every chunk, arrays of shape (p, v) or (p, v, B).

    B is a trailing axis of independent instances (strategies, or draws of a profile).

    Attributes:
        forward_s: forward.
        backward_s: input gradient, weight gradient and recomputation together.
        first_forward_extra_s: added to the forwards of micro-batch 0 (None: nothing).
        last_backward_extra_s: added to the backwards of the last micro-batch (None: nothing).
        send_s: from the end of an operation to the start of the one that waits for it on another rank, a
            number or an array (B,); it delays the receiver and occupies neither rank.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    first_forward_extra_s: FloatArray | None = None
    last_backward_extra_s: FloatArray | None = None
    send_s: float | FloatArray = 0.0

    def __post_init__(self) -> None:
        shape = self.forward_s.shape
        if len(shape) not in (2, 3):
            msg = f"durations have {len(shape)} axes, shape {shape}; use shape (p, v) or (p, v, B)"
            raise ValueError(msg)
        parts = (self.forward_s, self.backward_s, self.first_forward_extra_s, self.last_backward_extra_s)
        given = [part for part in parts if part is not None]
        if self.forward_s.size == 0:
            msg = f"durations are empty, shape {shape}; give at least one rank, chunk and instance"
            raise ValueError(msg)
        if any(part.shape != shape for part in given):
            msg = f"durations have shapes {[part.shape for part in given]}; give all of them one shape"
            raise ValueError(msg)
        if np.shape(self.send_s) not in ((), shape[2:]):
            msg = f"send_s has shape {np.shape(self.send_s)}; use a number or shape {shape[2:]}"
            raise ValueError(msg)
        if not all(_is_usable(part) for part in (*given, np.asarray(self.send_s))):
            msg = "durations contain a negative or non-finite number; give finite seconds from 0 up"
            raise ValueError(msg)

    @property
    def is_batched(self) -> bool:
        """Whether the durations carry the trailing axis B."""
        return self.forward_s.ndim == 3


def one_instance(durations: PipelineDurations) -> PipelineDurations:
    """The durations, refused unless they are of one instance, without the axis B."""
    if durations.is_batched:
        p, v, instances = durations.forward_s.shape
        msg = f"durations hold {instances} instances; give one, of shape ({p}, {v})"
        raise ValueError(msg)
    return durations


def rank_busy_s(m: int, durations: PipelineDurations) -> FloatArray:
    """Seconds in which every rank computes during a step of m micro-batches, shape (p,) or (p, B)."""
    busy_s = m * (durations.forward_s + durations.backward_s)
    for extra_s in (durations.first_forward_extra_s, durations.last_backward_extra_s):
        if extra_s is not None:
            busy_s = busy_s + extra_s
    total_s: FloatArray = busy_s.sum(axis=1)
    return total_s


def by_slot(durations: PipelineDurations) -> FloatArray:
    """Seconds of every kind of operation, shape (4 p v, B); B is 1 for durations without that axis.

    In blocks of p v, rank by rank: forward, backward, forward of micro-batch 0, backward of the last one.
    """
    forward, backward = durations.forward_s, durations.backward_s
    first, last = durations.first_forward_extra_s, durations.last_backward_extra_s
    first_forward = forward if first is None else forward + first
    last_backward = backward if last is None else backward + last
    rows = 4 * forward.shape[0] * forward.shape[1]
    return np.concatenate((forward, backward, first_forward, last_backward)).reshape(rows, -1)


@dataclass(frozen=True, slots=True, eq=False)
class DurationUnits:
    """Durations in whole units of 2**exponent seconds: slots (4 p v, B), send and exponent (B,)."""

    slots: FloatArray
    send: FloatArray
    exponent: NDArray[np.int32]

    def instances(self, first: int, last: int) -> "DurationUnits":
        """Instances first up to last."""
        columns = slice(first, last)
        return DurationUnits(self.slots[:, columns], self.send[columns], self.exponent[columns])


def in_units(durations: PipelineDurations, p: int, v: int, longest: int) -> DurationUnits:
    """Durations rounded so that sums along any path of up to `longest` operations are exact.

    Sums stay within 2**53 units, whole numbers that a double holds exactly, so simulated times compare
    exactly: "every rank advanced by the same time" is a proof, not a tolerance.  Rounding moves one duration
    by at most 2**-53 of the bound on the whole path: all its operations at the largest plain duration, and p
    v forwards of micro-batch 0 and p v last backwards at the largest of those.
    """
    shape = durations.forward_s.shape
    if shape[:2] != (p, v):
        msg = f"durations have shape {shape}, pp={p} and vpp={v}; use shape ({p}, {v}) or ({p}, {v}, B)"
        raise ValueError(msg)
    slot_s = by_slot(durations)
    send_s = np.broadcast_to(np.asarray(durations.send_s, dtype=np.float64), slot_s.shape[1:])
    half = len(slot_s) // 2
    plain_s, special_s = slot_s[:half].max(axis=0), slot_s[half:].max(axis=0)
    bound_s = longest * (plain_s + send_s) + half * special_s
    exponent: NDArray[np.int32] = np.frexp(bound_s)[1] - 52
    slots, send = (np.rint(np.ldexp(seconds, -exponent)) for seconds in (slot_s, send_s))
    return DurationUnits(slots, send, exponent)


def _is_usable(seconds: FloatArray) -> bool:
    # A NaN fails both comparisons.
    return bool(seconds.min() >= 0.0 and seconds.max() < np.inf)
