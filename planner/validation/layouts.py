"""`python -m planner.validation.layouts [--json]`: is every published layout legal, in the declared space, predicted to
fit, and its step within the interval? The exceptions are listed with what does not hold.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.profiles import profiles_root
from cost_models.specs.offload import parse_offload
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from planner.candidates import Candidates, enumerate_candidates
from planner.evaluation import Context
from planner.families import State
from planner.restrictions import read_restrictions
from planner.search.windows import declared_cuts, takes_every_cut
from planner.situation import Situation
from planner.validation.predict import Outcome, outcome_of
from planner.validation.rows import read_runs

ROW_AXES = ("tp", "cp", "pp", "ep", "etp", "dp", "mbs", "sp")


@dataclass(frozen=True, slots=True)
class Layout:
    """One published run: what holds of it, and what does not in words."""

    run: str
    skipped: str | None
    outside: tuple[str, ...] = ()
    fits: bool | None = None
    in_interval: bool | None = None
    detail: str = ""


def layout_of(outcome: Outcome) -> Layout:
    """Hold one outcome against the claims."""
    run, case, prediction = outcome.run, outcome.case, outcome.prediction
    name = run.text("id")
    if case is None or prediction is None:
        return Layout(name, outcome.skipped or "no prediction")
    outside = tuple(outside_space(case.situation, prediction.strategy))
    fits = None if run.out_of_memory else prediction.verdict != "does_not_fit"
    measured, low, high = run.step_s, prediction.step_s_low, prediction.step_s_high
    inside = None if measured is None else low <= measured / case.stretch <= high
    detail = f"{prediction.memory.device_used_bytes / 2**30:.1f} GiB"
    if measured is not None:
        detail += f", {measured / case.stretch:.3g} s measured, {low:.3g} to {high:.3g} s predicted"
    return Layout(name, None, outside, fits, inside, detail)


def outside_space(situation: Situation, strategy: Strategy) -> Iterator[str]:
    """The knobs by which a strategy lies outside the space that the search declares for the request."""
    context = Context.of(situation)
    candidates = enumerate_candidates(situation.engine, context.facts, read_restrictions({}, ()))
    families = candidates.families
    alike = np.ones(families.rows.size, dtype=bool)
    for axis in ROW_AXES:
        alike &= getattr(families.rows, axis) == int(getattr(strategy, axis))
    if not alike.any():
        yield _first_missing(candidates, strategy)
        return
    row = int(np.flatnonzero(alike)[0])
    options = families.options
    pipes = [
        (int(s), int(v)) for (s, v), ok in zip(options.pipes, families.pipes_legal[row], strict=True) if ok
    ]
    wanted = (list(type(strategy.schedule)).index(strategy.schedule), strategy.vpp)
    if wanted not in pipes:
        yield f"schedule {strategy.schedule.value} vpp {strategy.vpp}"
    state = State(strategy.zero, strategy.dp_replicate, parse_offload(strategy.offload))
    if state not in [s for s, ok in zip(options.states, families.states_legal[row], strict=True) if ok]:
        yield f"zero {strategy.zero} dp_replicate {strategy.dp_replicate} offload {strategy.offload}"
    kinds = [key for key, ok in zip(options.kinds, families.kinds_legal[row], strict=True) if ok]
    yield from _recompute_outside({key.scopes for key in kinds}, strategy.recompute)
    if _ordered(strategy, strategy.cp_kind, strategy.order) not in {
        _ordered(strategy, key.cp_kind, key.order) for key in kinds
    }:
        yield f"cp_kind {strategy.cp_kind} order {'-'.join(strategy.order)}"
    yield from _stages_outside(situation, strategy)


def _ordered(strategy: Strategy, cp_kind: str, order: tuple[str, ...]) -> tuple[object, ...]:
    """Kind of context parallelism and order of axes, as far as the strategy has something to order."""
    return (cp_kind if strategy.cp > 1 else None, order if strategy.pp > 1 and strategy.dp > 1 else None)


def _first_missing(candidates: Candidates, strategy: Strategy) -> str:
    """An axis value that the space does not hold, or that the combination breaks a rule."""
    for axis in ("tp", "cp", "pp", "ep", "etp", "mbs"):
        values = candidates.space[axis]
        if isinstance(values, list) and getattr(strategy, axis) not in values:
            return f"{axis} {getattr(strategy, axis)}"
    return "a combination of degrees"


def _recompute_outside(scopes: set[tuple[str, ...]], recompute: Recompute) -> Iterator[str]:
    if recompute.scopes not in scopes:
        yield f"recompute {recompute.text()}"


def _stages_outside(situation: Situation, strategy: Strategy) -> Iterator[str]:
    blocks = situation.model.num_blocks
    if takes_every_cut(strategy.schedule, strategy.vpp, blocks):
        return
    cuts = declared_cuts(blocks, len(strategy.stages))
    if not (cuts == np.asarray(strategy.stages)).all(axis=1).any():
        yield f"stages {'+'.join(map(str, strategy.stages))}"


def layouts() -> list[Layout]:
    """All published runs."""
    return [layout_of(outcome_of(run)) for run in read_runs(profiles_root() / "published" / "runs.csv")]


def summary(found: Sequence[Layout]) -> dict[str, object]:
    """Counts, and the exceptions by kind."""
    legal = [one for one in found if one.skipped is None]
    return {
        "rows": len(found),
        "predicted": len(legal),
        "inside_the_space": sum(not one.outside for one in legal),
        "fit": sum(one.fits is True for one in legal),
        "asked_to_fit": sum(one.fits is not None for one in legal),
        "in_the_interval": sum(one.in_interval is True for one in legal),
        "measured": sum(one.in_interval is not None for one in legal),
        "outside_by": dict(Counter(knob.split(" ")[0] for one in legal for knob in one.outside)),
        "skipped_by": dict(Counter(one.skipped for one in found if one.skipped).most_common(12)),
    }


def main(arguments: list[str]) -> int:
    """Write the summary and every exception."""
    found = layouts()
    exceptions = [
        {"run": one.run, "outside": one.outside, "fits": one.fits, "in_interval": one.in_interval}
        | {"detail": one.detail}
        for one in found
        if one.skipped is None and (one.outside or one.fits is False or one.in_interval is False)
    ]
    report = summary(found) | {"exceptions": exceptions}
    if "--json" in arguments:
        sys.stdout.write(json.dumps(report) + "\n")
        return 0
    for key, value in summary(found).items():
        sys.stdout.write(f"{key}: {value}\n")
    for one in exceptions:
        sys.stdout.write(f"{one}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
