"""The steps of a layer in runs that are recomputed together, and when each tensor is let go."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.executor.model.recompute import Recomputed
from planner.executor.model.wiring import Step


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run together; `again`: they keep their inputs only and run again before their backward."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dropped: tuple[tuple[str, ...], ...]
    """Keys that nobody reads after each step, so that a tensor lives no longer than its last reader."""
    again: bool
    given_up: tuple[str, ...] = ()
    """Outputs that are dropped after the forward pass although later steps read them."""


def segments_of(
    steps: Sequence[Step], what: Recomputed, kept: frozenset[str] = frozenset()
) -> tuple[Segment, ...]:
    """Runs of consecutive steps that are recomputed together, and the runs between them.

    `kept` are keys that are wanted after the last step, beside its output.
    """
    runs: list[list[Step]] = []
    again = what.operators
    steps = gathered(steps, again)
    for step in steps:
        here = step.scope_of in again
        if runs and (runs[-1][-1].scope_of in again) == here:
            runs[-1].append(step)
        else:
            runs.append([step])
    found, start = [], 0
    for run in runs:
        stop = start + len(run)
        found.append(_segment(steps, (start, stop), run[0].scope_of in again, (what.given_up, kept)))
        start = stop
    return tuple(found)


def gathered(steps: Sequence[Step], again: frozenset[str]) -> tuple[Step, ...]:
    """Recomputed steps moved down to the next recomputed one where nobody between reads what they write."""
    found = list(steps)
    for index in range(len(found) - 2, -1, -1):
        step = found[index]
        if step.scope_of not in again:
            continue
        stop = index + 1
        while stop < len(found) and found[stop].scope_of not in again and not _reads(found[stop], step):
            stop += 1
        if stop < len(found) and found[stop].scope_of in again:
            found.insert(stop - 1, found.pop(index))
    return tuple(found)


def _reads(reader: Step, writer: Step) -> bool:
    return bool(set(reader.inputs) & set(writer.outputs))


def _segment(
    steps: Sequence[Step],
    part: tuple[int, int],
    again: bool,
    special: tuple[frozenset[str], frozenset[str]],
) -> Segment:
    """`special`: keys that are given up, and keys that are kept to the end."""
    start, stop = part
    given_up, kept = special
    run, later = steps[start:stop], steps[stop:]
    read_later = {key for step in later for key in step.inputs} | kept
    final = steps[-1].outputs[0]
    written = {key for step in run for key in step.outputs}
    inputs = tuple(dict.fromkeys(key for step in run for key in step.inputs if key not in written))
    outputs = tuple(
        key for step in run for key in step.outputs if key in read_later or (key == final and not later)
    )
    dropped = []
    for index, step in enumerate(run):
        after = {key for other in run[index + 1 :] for key in other.inputs} | read_later | {final}
        dropped.append(tuple(sorted({key for key in (*step.inputs, *step.outputs) if key not in after})))
    promised = tuple(key for key in outputs if again and key in given_up and key != final)
    return Segment(tuple(run), inputs, outputs, tuple(dropped), again, promised)
