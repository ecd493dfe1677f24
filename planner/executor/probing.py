"""A probe that is run: the small twin of a big plan trains here, and what it shows is carried to the plan."""

from dataclasses import dataclass

from cost_models.specs.strategy import strategy_from_mapping
from planner.executor.report import RunReport
from planner.executor.request import RunOptions, order_of
from planner.executor.run import OnEvent, Start, run_order
from planner.probe import Carried, Probe, carry


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A probe's run, and what it says about the plan."""

    report: RunReport
    carried: Carried

    def to_json(self) -> dict[str, object]:
        """The run without its curve."""
        return {key: value for key, value in self.report.to_json().items() if key != "curve"}


def run_probe(
    probe: Probe, options: RunOptions, on_event: OnEvent | None = None, start: Start | None = None
) -> ProbeRun:
    """Train the probe, and add measured minus predicted to what the plan was predicted to take.

    Raises as `run_order` does.
    """
    strategy = strategy_from_mapping(probe.prediction.strategy.to_json())
    report = run_order(order_of(probe.situation, strategy, options), on_event, start)
    return ProbeRun(report, carry(probe, report.to_json()))
