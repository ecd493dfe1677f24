"""Runs a plan on torch.distributed and says how what ran compares with what was predicted.

from planner.executor import RunOptions, run_plan
report = run_plan(parse_plan(json.loads(Path("plan.json").read_text())), RunOptions(steps=20))
print(report.step_s, report.prediction.step_s)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.executor.request import RunOptions as RunOptions
    from planner.executor.request import RunOrder as RunOrder
    from planner.executor.run import run_order as run_order
    from planner.executor.run import run_plan as run_plan
    from planner.executor.run import verify_order as verify_order

__all__ = ["RunOptions", "RunOrder", "run_order", "run_plan", "verify_order"]

_HOMES = {"RunOptions": "request", "RunOrder": "request"}


def __getattr__(name: str) -> Any:
    """The names above, imported when first used: a worker imports this package before it can be ended cleanly."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'run')}"), name)
