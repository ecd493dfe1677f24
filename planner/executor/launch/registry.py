"""Launchers beyond this machine by name, with what a user sets them to."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.suggest import did_you_mean
from planner.executor.launch.job import Launcher
from planner.executor.launch.kubernetes import KubernetesLauncher, KubernetesOptions
from planner.executor.launch.slurm import SlurmLauncher, SlurmOptions
from planner.executor.launch.slurm.launcher import check_slurm

LOCAL: Final = "local"
NUMBERS: Final = ("cpus_per_node", "keep_s")
LAUNCHERS: Final = (LOCAL, "slurm", "kubernetes")
_OPTIONS: Final[Mapping[str, type[SlurmOptions] | type[KubernetesOptions]]] = {
    "slurm": SlurmOptions,
    "kubernetes": KubernetesOptions,
}


def make_launcher(name: str, settings: Mapping[str, object], *, check: bool = True) -> Launcher:
    """A launcher beyond this machine; raises LauncherMissing where it is not here (unless told not to `check`)."""
    options = launcher_options(name, settings)
    if isinstance(options, SlurmOptions):
        if check:
            check_slurm()
        return SlurmLauncher(options)
    launcher = KubernetesLauncher(options)
    if check:
        launcher.check()
    return launcher


def settings_of(stated: Sequence[str]) -> dict[str, object]:
    """`KEY=VALUE` texts as settings: whole numbers and booleans are read as such where the option is one."""
    settings: dict[str, object] = {}
    for text in stated:
        key, found, value = text.partition("=")
        if not found or not key:
            raise BadInput(
                f"--launch {text!r:.80} is not KEY=VALUE; write for example --launch partition=gpu"
            )
        words = {"true": True, "false": False}
        settings[key] = words.get(value, int(value) if key in NUMBERS and value.isdecimal() else value)
    return settings


def launcher_options(name: str, settings: Mapping[str, object]) -> SlurmOptions | KubernetesOptions:
    """The options of a launcher; raises BadInput naming what is unknown or unusable."""
    kind = _OPTIONS.get(name)
    if kind is None:
        raise BadInput(
            f"launcher {name!r:.60} has no options; use {', '.join(_OPTIONS)}", pointer="/launcher"
        )
    unknown = sorted(set(settings) - set(kind.model_fields))
    if unknown:
        known = tuple(kind.model_fields)
        hint = did_you_mean(unknown[0], known)
        raise BadInput(
            f"{name} has no option {unknown[0]!r:.60}; {hint}use {', '.join(known)}", pointer="/launcher"
        )
    try:
        return kind.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise BadInput(
            f"{name} option {key}: {first['msg']}; give another value", pointer="/launcher"
        ) from None
