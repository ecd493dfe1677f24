"""Scores of memory predictions: errors by counter, what the allocator kept, and probabilities against what happened."""

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from planner.validation.predict import Outcome


def happened(outcomes: Iterable[Outcome]) -> tuple[tuple[float, bool], ...]:
    """Predicted probability to run out of memory, and whether the run did, of every predicted row."""
    return tuple((o.prediction.oom_probability, o.run.out_of_memory) for o in outcomes if o.prediction)


def brier(outcomes: Iterable[Outcome]) -> float | None:
    """Mean of (probability - what happened) squared (Brier 1950); 0 is certain and right, 1 certain and wrong."""
    pairs = happened(outcomes)
    return fmean((probability - failed) ** 2 for probability, failed in pairs) if pairs else None


def at_risk_share(outcomes: Iterable[Outcome]) -> float | None:
    """Share of the runs that ran whose verdict is `at_risk`."""
    verdicts = [o.prediction.verdict for o in outcomes if o.prediction and not o.run.out_of_memory]
    return sum(verdict == "at_risk" for verdict in verdicts) / len(verdicts) if verdicts else None


def risk_json(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Verdicts against what happened."""
    known = [o for o in outcomes if o.prediction]
    ran = [o for o in known if not o.run.out_of_memory]
    failed = [o for o in known if o.run.out_of_memory]
    return {
        "ran": len(ran),
        "failed": len(failed),
        "ran_fits": _count(ran, "fits"),
        "ran_at_risk": _count(ran, "at_risk"),
        "ran_does_not_fit": _count(ran, "does_not_fit"),
        "failed_fits": _count(failed, "fits"),
        "failed_at_risk": _count(failed, "at_risk"),
        "failed_does_not_fit": _count(failed, "does_not_fit"),
        "brier": brier(known),
    }


def counters_json(outcomes: Sequence[Outcome]) -> dict[str, dict[str, object]]:
    """Errors by what the source's counter counts; `kept` is what the allocator held where a source prints both."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.memory_error is not None and outcome.run.counter:
            found.setdefault(outcome.run.counter, []).append(outcome.memory_error)
        if outcome.reserved_error is not None:
            found.setdefault("kept", []).append(outcome.reserved_error)
    return {counter: errors_json(errors) for counter, errors in sorted(found.items())}


def errors_json(errors: Sequence[float]) -> dict[str, object]:
    """Number, mean, median and worst of signed relative errors."""
    return {
        "n": len(errors),
        "mean_error": fmean(map(abs, errors)),
        "median_error": median(errors),
        "worst": max(map(abs, errors)),
    }


def _count(outcomes: Iterable[Outcome], verdict: str) -> int:
    return sum(o.prediction.verdict == verdict for o in outcomes if o.prediction)
