"""Predict cases, under the curves of the profiles or under those that a fit tries."""

from dataclasses import dataclass, replace

from cost_models.errors import BadInput
from cost_models.mesh import batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.roofline import Efficiency
from planner.answers import Prediction, StageMemory
from planner.evaluation import Context, complete_legal, predict
from planner.validation.mapping import Case, case_of
from planner.validation.rows import Run, Unusable


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row with its prediction, or with the reason why there is none."""

    run: Run
    case: Case | None
    prediction: Prediction | None
    skipped: str | None

    @property
    def assumed(self) -> tuple[str, ...]:
        """Knobs that the source does not state."""
        return self.case.assumed if self.case else ()

    @property
    def step_s(self) -> float | None:
        """Predicted seconds of the step as the run took it."""
        if self.prediction is None or self.case is None:
            return None
        return self.prediction.step_s * self.case.stretch

    @property
    def step_error(self) -> float | None:
        """Predicted / measured - 1; none for runs that failed."""
        measured, predicted = self.run.step_s, self.step_s
        if measured is None or predicted is None:
            return None
        return predicted / measured - 1.0

    @property
    def predicted_bytes(self) -> float | None:
        """Predicted peak by the counter and on the rank of the measured figure."""
        if self.prediction is None or self.run.counter is None:
            return None
        values: list[float] = [getattr(stage, f"{self.run.counter}_bytes") for stage in self.counted_stages]
        return max(values)

    @property
    def counted_stages(self) -> tuple[StageMemory, ...]:
        """Pipeline ranks that the measured figure may be of."""
        if self.prediction is None:
            return ()
        stages = self.prediction.memory.stages
        first_node = stages[: self.run.first_node_stages]
        ranks = {"last": stages[-1:], "ends": (stages[0], stages[-1]), "first_node": first_node}
        return ranks.get(self.run.memory_rank, stages)

    @property
    def reserved_error(self) -> float | None:
        """Predicted / measured - 1 of what the allocator held, where the source prints it beside allocated bytes."""
        measured, stages = self.run.reserved_bytes, self.counted_stages
        if measured is None or not stages or self.run.out_of_memory:
            return None
        return max(stage.reserved_bytes for stage in stages) / measured - 1.0

    @property
    def memory_error(self) -> float | None:
        """Predicted / measured - 1, same counter and rank; none where the run failed, as it never peaked."""
        measured, predicted = self.run.memory_bytes, self.predicted_bytes
        if measured is None or predicted is None or self.run.out_of_memory:
            return None
        return predicted / measured - 1.0


def outcome_of(run: Run) -> Outcome:
    """Predict one row; never raises for what the row says."""
    try:
        case = case_of(run)
        return Outcome(run, case, predict_case(case), None)
    except (Unusable, BadInput) as reason:
        return Outcome(run, None, None, str(reason).replace("\n", "; "))


def of_run(outcome: Outcome, run: Run) -> Outcome:
    """The same prediction for a run that asks for the same."""
    if outcome.run is run:
        return outcome
    return replace(outcome, run=run, case=replace(outcome.case, run=run) if outcome.case else None)


def predict_case(case: Case, efficiency: Efficiency | None = None) -> Prediction:
    """The prediction of a case; `efficiency` stands for the curves of its device and generation, as a fit tries."""
    context = Context.of(case.situation)
    if efficiency is not None:
        context = replace(context, pricer=replace(context.pricer, efficiency=efficiency))
    strategy = complete_legal(context, case.strategy)
    batch = batch_of([strategy], mesh_key(strategy))
    priced = context.pricer.price(batch)
    return predict(
        context, strategy, mesh_costs(context.pricer, priced, batch_rules(context.pricer, priced), 0)
    )
