"""Which optimizers run under which layout; reads no torch, so that a run is refused before anything starts."""

from cost_models.errors import Violation
from cost_models.specs.job import Job, Optimizer
from cost_models.specs.strategy import Strategy

SOURCE = "planner.executor.optimizers"


def optimizer_violations(job: Job, strategy: Strategy) -> tuple[Violation, ...]:
    """What stands against the job's optimizer under the strategy."""
    match job.optimizer:
        case Optimizer.ADAFACTOR:
            return _adafactor(strategy)
        case Optimizer.MUON if strategy.offload != "none":
            detail = (
                f"optimizer muon gathers matrices on the devices, where offload={strategy.offload} keeps none"
            )
            return (Violation("run_muon_offload", detail, ("offload=none", "--optimizer adamw"), SOURCE),)
    return ()


def _adafactor(strategy: Strategy) -> tuple[Violation, ...]:
    if strategy.tp == 1 and (strategy.zero == 0 or strategy.dp == 1):
        return ()
    detail = (
        f"optimizer adafactor keeps sums over whole rows and columns, which zero {strategy.zero} with "
        f"dp {strategy.dp} and tp {strategy.tp} divides"
    )
    return (Violation("run_adafactor", detail, ("zero 0 with tp 1", "--optimizer adam8bit"), SOURCE),)
