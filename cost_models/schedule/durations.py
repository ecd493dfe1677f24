"""Seconds of every chunk of a pipeline, and their rounding to multiples of a power of two."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.operations import PassCounts

FloatArray = NDArray[np.float64]


class Slot(IntEnum):
    """Kinds of operation that take different seconds; the first four are those of lists without a split.

    Paired are a forward and the backward after it that run side by side (see `dual_pipe`).
    """

    FORWARD = 0
    BACKWARD = 1
    FIRST_FORWARD = 2
    LAST_BACKWARD = 3
    INPUT_GRADIENT = 4
    WEIGHT_GRADIENT = 5
    LAST_WEIGHT_GRADIENT = 6
    PAIRED_FORWARD = 7
    PAIRED_BACKWARD = 8


NUM_FUSED_SLOTS = 4
_SPECIAL = [Slot.FIRST_FORWARD, Slot.LAST_BACKWARD, Slot.LAST_WEIGHT_GRADIENT]


@dataclass(frozen=True, slots=True, eq=False)
class PipelineDurations:
    """Seconds per micro-batch of every chunk, arrays of shape (p, v) or (p, v, B).

    B is a trailing axis of independent instances (strategies, or draws of a profile).

    Attributes:
        forward_s: forward.
        backward_s: input gradient, weight gradient and recomputation together, as one operation.
        first_forward_extra_s: added to the forwards of micro-batch 0 (None: nothing).
        last_backward_extra_s: added to the backwards of the last micro-batch, to its weight gradients where
            they are apart (None: nothing).
        send_s: from the end of an operation to the start of the one that waits for it on another rank, a
            number or an array (B,); it delays the receiver and occupies neither rank.
        link_s: the same for every link of its own, shape (p,) or (p, B): entry i between ranks i and i + 1, the last
            between the last rank and the first (None: `send_s` everywhere).
        input_gradient_s: input gradient and recomputation, for schedules that split their backward.
        weight_gradient_s: weight gradient, for schedules that split their backward.
        paired_forward_s: forward beside a backward of the rank's other chunk (None: as `forward_s`); only the dualpipe
            schedules have such pairs.
        paired_backward_s: what that backward adds when its forward has ended; 0 where a pair is one piece of work that
            hands both results on at its end.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    first_forward_extra_s: FloatArray | None = None
    last_backward_extra_s: FloatArray | None = None
    send_s: float | FloatArray = 0.0
    input_gradient_s: FloatArray | None = None
    weight_gradient_s: FloatArray | None = None
    link_s: FloatArray | None = None
    paired_forward_s: FloatArray | None = None
    paired_backward_s: FloatArray | None = None

    def __post_init__(self) -> None:
        shape = self.forward_s.shape
        if len(shape) not in (2, 3):
            msg = f"durations have {len(shape)} axes, shape {shape}; use shape (p, v) or (p, v, B)"
            raise ValueError(msg)
        parts = (
            self.forward_s,
            self.backward_s,
            self.first_forward_extra_s,
            self.last_backward_extra_s,
            self.input_gradient_s,
            self.weight_gradient_s,
            self.paired_forward_s,
            self.paired_backward_s,
        )
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
        if self.link_s is not None and self.link_s.shape not in (shape[:1], (shape[0], *shape[2:])):
            msg = f"link_s has shape {self.link_s.shape}; use shape {(shape[0], *shape[2:])}"
            raise ValueError(msg)
        delays = [np.asarray(self.send_s)] + ([] if self.link_s is None else [self.link_s])
        if not all(_is_usable(part) for part in (*given, *delays)):
            msg = "durations contain a negative or non-finite number; give finite seconds from 0 up"
            raise ValueError(msg)

    @property
    def is_batched(self) -> bool:
        """Whether the durations carry the trailing axis B."""
        return self.forward_s.ndim == 3

    def paired_s(self) -> tuple[FloatArray, FloatArray]:
        """Seconds of the forward and the backward of a pair."""
        forward, backward = self.paired_forward_s, self.paired_backward_s
        return (
            self.forward_s if forward is None else forward,
            self.backward_s if backward is None else backward,
        )

    def split_s(self) -> tuple[FloatArray, FloatArray]:
        """Input-gradient and weight-gradient seconds; refused where they are not given."""
        if self.input_gradient_s is None or self.weight_gradient_s is None:
            msg = "durations have no input_gradient_s or weight_gradient_s; give both to a schedule that splits them"
            raise ValueError(msg)
        return self.input_gradient_s, self.weight_gradient_s


def one_instance(durations: PipelineDurations) -> PipelineDurations:
    """The durations, refused unless they are of one instance, without the axis B."""
    if durations.is_batched:
        p, v, instances = durations.forward_s.shape
        msg = f"durations hold {instances} instances; give one, of shape ({p}, {v})"
        raise ValueError(msg)
    return durations


def rank_busy_s(counts: PassCounts, durations: PipelineDurations) -> FloatArray:
    """Seconds in which every rank computes during a step with these passes, shape (p,) or (p, B)."""
    shape = (*counts.forwards.shape, *(1 for _ in durations.forward_s.shape[2:]))
    forwards, fused, split = (
        count.reshape(shape) for count in (counts.forwards, counts.fused_backwards, counts.split_backwards)
    )
    busy_s = forwards * durations.forward_s + fused * durations.backward_s
    if counts.split_backwards.any():
        busy_s = busy_s + split * sum(durations.split_s())
    if counts.paired_forwards.any():
        forward_s, backward_s = durations.paired_s()
        busy_s = busy_s - counts.paired_forwards.reshape(shape) * (durations.forward_s - forward_s)
        busy_s = busy_s - counts.paired_backwards.reshape(shape) * (durations.backward_s - backward_s)
    for extra_s in (durations.first_forward_extra_s, durations.last_backward_extra_s):
        if extra_s is not None:
            busy_s = busy_s + extra_s
    total_s: FloatArray = busy_s.sum(axis=1)
    return total_s


def by_slot(durations: PipelineDurations, *, split: bool = False) -> FloatArray:
    """Seconds of every kind of operation, shape (4 p v, B), or (9 p v, B) with a split backward.

    In blocks of p v in the order of `Slot`, each rank by rank; B is 1 for durations without that axis.
    """
    forward, backward = durations.forward_s, durations.backward_s
    first, last = durations.first_forward_extra_s, durations.last_backward_extra_s
    first_forward = forward if first is None else forward + first
    last_backward = backward if last is None else backward + last
    blocks = [forward, backward, first_forward, last_backward]
    if split:
        input_gradient, weight_gradient = durations.split_s()
        last_weight = weight_gradient if last is None else weight_gradient + last
        blocks += [input_gradient, weight_gradient, last_weight, *durations.paired_s()]
    rows = len(blocks) * forward.shape[0] * forward.shape[1]
    return np.concatenate(blocks).reshape(rows, -1)


@dataclass(frozen=True, slots=True, eq=False)
class DurationUnits:
    """Durations in whole units of 2**exponent seconds: slots (4 p v, B) or (9 p v, B), exponent (B,).

    `send` has shape (1, B), or (p, B) where every link has seconds of its own.
    """

    slots: FloatArray
    send: FloatArray
    exponent: NDArray[np.int32]

    def instances(self, first: int, last: int) -> "DurationUnits":
        """Instances first up to last."""
        columns = slice(first, last)
        return DurationUnits(self.slots[:, columns], self.send[:, columns], self.exponent[columns])


def in_units(
    durations: PipelineDurations, p: int, v: int, longest: int, *, split: bool = False
) -> DurationUnits:
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
    slot_s = by_slot(durations, split=split)
    send_s = _delays(durations, slot_s.shape[1])
    largest_s = slot_s.reshape(-1, p * v, slot_s.shape[1]).max(axis=1)
    special = [slot for slot in _SPECIAL if slot < len(largest_s)]
    special_s = largest_s[special].max(axis=0)
    plain_s = np.delete(largest_s, special, axis=0).max(axis=0)
    bound_s = longest * (plain_s + send_s.max(axis=0)) + 2 * p * v * special_s
    exponent: NDArray[np.int32] = np.frexp(bound_s)[1] - 52
    slots, send = (np.rint(np.ldexp(seconds, -exponent)) for seconds in (slot_s, send_s))
    return DurationUnits(slots, send, exponent)


def _delays(durations: PipelineDurations, instances: int) -> FloatArray:
    """Seconds of a send, shape (1, B), or of every link, shape (p, B)."""
    if durations.link_s is None:
        return np.broadcast_to(np.asarray(durations.send_s, dtype=np.float64), (1, instances))
    return np.broadcast_to(
        durations.link_s.reshape(len(durations.link_s), -1), (len(durations.link_s), instances)
    )


def _is_usable(seconds: FloatArray) -> bool:
    # A NaN fails both comparisons.
    return bool(seconds.min() >= 0.0 and seconds.max() < np.inf)
