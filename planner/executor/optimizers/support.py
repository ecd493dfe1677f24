"""Which optimizers run under which layout; reads no torch, so that a run is refused before anything starts."""

from cost_models.errors import Violation
from cost_models.specs.job import Job, Optimizer
from cost_models.specs.strategy import Strategy

SOURCE = "planner.executor.optimizers"


def optimizer_violations(job: Job, strategy: Strategy) -> tuple[Violation, ...]:
    """What stands against the job's optimizer under the strategy."""
    if job.optimizer is not Optimizer.ADAFACTOR:
        return ()
    sharded = strategy.zero >= 1 and strategy.dp > 1
    if not sharded and strategy.tp == 1:
        return ()
    detail = (
        f"optimizer adafactor keeps sums over whole rows and columns, which zero {strategy.zero} with "
        f"dp {strategy.dp} and tp {strategy.tp} divides"
    )
    return (Violation("run_adafactor", detail, ("zero 0 with tp 1", "--optimizer adam8bit"), SOURCE),)
