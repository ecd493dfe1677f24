"""The answer of `planner validate`: every row with both numbers, and the errors by source and in all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from planner.validation.memory_scores import at_risk_share, brier, counters_json, risk_json
from planner.validation.predict import Outcome
from planner.validation.ranking import grouped, ranking
from planner.validation.test_scores import tests_json

Errors = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Outcomes in the order of the table."""

    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, object]:
        """The contract's `validate --json`; the summary covers rows whose knobs are all stated, `assumed` the rest."""
        stated, assumed = self.stated(), self.assumed()
        return {
            "rows": [row_json(outcome) for outcome in self.outcomes],
            "by_source": {source: statistics(rows) for source, rows in grouped(stated, _source).items()},
            "summary": {**statistics(stated), "skipped": sum(o.skipped is not None for o in self.outcomes)},
            "assumed": {
                **statistics(assumed),
                "by_source": {source: statistics(rows) for source, rows in grouped(assumed, _source).items()},
            },
            "core": {
                kind: statistics(rows)
                for kind, rows in grouped([o for o in stated if o.run.is_core], _kind).items()
            },
            "ranking": ranking(stated),
            "memory": {"by_counter": counters_json(stated), "risk": risk_json(stated)},
            **({"tests": tests_json(self.outcomes)} if self.has_tests() else {}),
        }

    def has_tests(self) -> bool:
        """Whether the runs are of Megatron-Core's own tests, which are scored test by test."""
        return any(outcome.run.text("test") for outcome in self.outcomes)

    def stated(self) -> tuple[Outcome, ...]:
        """Predicted rows whose source states every knob."""
        return tuple(o for o in self.outcomes if o.skipped is None and not o.assumed)

    def assumed(self) -> tuple[Outcome, ...]:
        """Predicted rows with a knob taken from the framework's default."""
        return tuple(o for o in self.outcomes if o.skipped is None and o.assumed)


def row_json(outcome: Outcome) -> dict[str, object]:
    """One row of the report."""
    run, prediction = outcome.run, outcome.prediction
    return {
        "id": run.id,
        "source": run.source,
        "core": run.is_core,
        "kind": run.text("kind"),
        "predicted_step_s": outcome.step_s,
        "measured_step_s": run.step_s,
        "step_error": outcome.step_error,
        "counter": run.counter,
        "rank": run.memory_rank if run.counter else None,
        "predicted_bytes": outcome.predicted_bytes,
        "measured_bytes": run.memory_bytes,
        "memory_error": outcome.memory_error,
        "reserved_error": outcome.reserved_error,
        "oom_probability": prediction.oom_probability if prediction else None,
        "verdict": prediction.verdict if prediction else None,
        "oom": run.out_of_memory,
        "assumed": list(outcome.assumed),
        "read_as": outcome.case.nearest if outcome.case else "",
        "skipped": outcome.skipped,
    }


def statistics(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Errors of step time and memory over rows, and verdicts against what happened."""
    steps, memory = step_errors(outcomes), memory_errors(outcomes)
    verdicts = [(o.prediction.verdict, o.run.out_of_memory) for o in outcomes if o.prediction]
    return {
        "n": len(outcomes),
        "n_step": len(steps),
        "step_mape": fmean(map(abs, steps)) if steps else None,
        "step_median_ape": median(map(abs, steps)) if steps else None,
        "step_median_error": median(steps) if steps else None,
        "n_memory": len(memory),
        "memory_mape": fmean(map(abs, memory)) if memory else None,
        "memory_median_error": median(memory) if memory else None,
        "within_interval": within_interval(outcomes),
        "false_fits": sum(verdict == "fits" and failed for verdict, failed in verdicts),
        "false_ooms": sum(verdict == "does_not_fit" and not failed for verdict, failed in verdicts),
        "at_risk": sum(verdict == "at_risk" for verdict, _ in verdicts),
        "at_risk_share": at_risk_share(outcomes),
        "brier": brier(outcomes),
    }


def step_errors(outcomes: Iterable[Outcome]) -> Errors:
    """Signed errors of step time, where there is one."""
    return tuple(o.step_error for o in outcomes if o.step_error is not None)


def memory_errors(outcomes: Iterable[Outcome]) -> Errors:
    """Signed errors of peak memory, where there is one."""
    return tuple(o.memory_error for o in outcomes if o.memory_error is not None)


def within_interval(outcomes: Iterable[Outcome]) -> float | None:
    """Share of the measured steps inside the 90 % interval of their prediction."""
    inside = []
    for outcome in outcomes:
        if outcome.prediction and outcome.case and outcome.run.step_s:
            measured = outcome.run.step_s / outcome.case.stretch
            inside.append(outcome.prediction.step_s_low <= measured <= outcome.prediction.step_s_high)
    return fmean(inside) if inside else None


def _source(outcome: Outcome) -> str:
    return outcome.run.source


def _kind(outcome: Outcome) -> str:
    return outcome.run.text("kind", "dense")
