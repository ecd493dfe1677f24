"""Whether a launcher could start a plan from this server; nothing is started, and no torch is loaded."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from api.errors import Problem
from api.runs.requests import configured_launch
from api.settings import Settings
from cost_models.errors import BadInput

EXECUTED: Final = ("torch", "ddp", "fsdp2", "parameter_server")
"""Engines that the executor itself runs."""
DEVICES: Final = Path("/dev")


def check_launcher(launcher: str, plan: Mapping[str, Any], settings: Settings) -> None:
    """Raise Problem 409 `launcher_unavailable` with what is missing."""
    if launcher == "local":
        _check_local(plan)
        return
    from planner.executor.launch.registry import make_launcher, settings_of

    try:
        make_launcher(launcher, settings_of(configured_launch(launcher, settings.run_launch)))
    except BadInput as error:
        raise _unavailable(error.detail) from None


def check_configured(stated: Sequence[str]) -> None:
    """Raise BadInput for what no launcher is told (`slurm.partition=gpu` is)."""
    from planner.executor.launch.registry import launcher_options, settings_of

    for text in stated:
        key, found, _ = text.partition("=")
        launcher, dot, _ = key.partition(".")
        if not found or not dot or launcher not in ("slurm", "kubernetes"):
            raise BadInput(f"--run-launch {text[:80]!r} is not LAUNCHER.KEY=VALUE; write slurm.partition=gpu")
    for launcher in ("slurm", "kubernetes"):
        launcher_options(launcher, settings_of(configured_launch(launcher, stated)))


def _check_local(plan: Mapping[str, Any]) -> None:
    engine = plan["request"]["job"]["engine"]
    name = engine if isinstance(engine, str) else engine.get("name")
    if str(name).partition("@")[0] not in EXECUTED:
        raise _unavailable(
            f"engine {name} is run by its own script; use launcher slurm or kubernetes, or plan with engine torch"
        )
    if find_spec("torch") is None:
        raise _unavailable("torch is not installed on this server; install parallelism-planner[torch]")
    device = plan["request"]["cluster"]["spec"]["groups"][0]["device"]
    if isinstance(device, dict) and device.get("architecture") == "cpu":
        return
    needed, here = _world(plan), len(list(DEVICES.glob("nvidia[0-9]*")))
    if here < needed:
        raise _unavailable(
            f"the plan needs {needed} GPUs, this server's host has {here}; use another launcher"
        )


def _world(plan: Mapping[str, Any]) -> int:
    strategy = plan["result"]["best"]["strategy"]
    return int(strategy["tp"] * strategy["cp"] * strategy["pp"] * strategy["dp"])


def _unavailable(detail: str) -> Problem:
    return Problem(409, "launcher_unavailable", detail)
