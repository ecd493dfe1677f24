"""Complete strategies for the executor's tests, from the axes that matter."""

from typing import Any

from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import parse_recompute
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy


def strategy(**axes: Any) -> Strategy:
    """A complete strategy; every axis that is not given is 1, dp = dp_replicate x dp_shard."""
    values: dict[str, Any] = dict.fromkeys(
        ("tp", "cp", "pp", "vpp", "ep", "etp", "dp_shard", "dp_replicate", "mbs"), 1
    )
    values |= {"zero": 0, "schedule": ScheduleName("1f1b"), "order": DEFAULT_ORDER} | axes
    values.setdefault("dp", values["dp_shard"] * values["dp_replicate"])
    values.setdefault("sp", values["tp"] > 1)
    values.setdefault("recompute", parse_recompute("none"))
    values.setdefault("stages", (1,) * (values["pp"] * values["vpp"]))
    return Strategy(**values)
