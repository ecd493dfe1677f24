"""`--settings FILE --format NAME`: a framework's own settings; options win over what the file says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest
from planner.cli.inputs import read_text
from planner.cli.question import (
    Question,
    load_cluster_input,
    load_model_input,
    situation_of,
    strategy_of,
    validated,
)

if TYPE_CHECKING:
    from planner.formats.settings import Settings
    from planner.situation import Situation

SETTINGS_OPTIONS = (
    click.option(
        "--settings", "settings_file", metavar="FILE", help="Settings of a framework instead of --strategy."
    ),
    click.option(
        "--format", "settings_format", metavar="FORMAT", help="Whose settings; found out where it is clear."
    ),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A situation and a strategy, and the settings that they were read from, if they were."""

    situation: "Situation"
    strategy: StrategyRequest
    settings: "Settings | None" = None

    def to_json(self) -> dict[str, object]:
        """The key `settings` of an answer; empty where none were read."""
        read = self.settings
        if read is None:
            return {}
        return {
            "settings": {
                "framework": read.framework,
                "assumed": list(read.assumed),
                "ignored": list(read.ignored),
                "unknown": list(read.unknown),
            }
        }

    def notes(self) -> tuple[str, ...]:
        """What the settings do not say, for people: taken from the framework's defaults, or not known here."""
        read = self.settings
        if read is None:
            return ()
        said = [f"the settings do not state {', '.join(read.assumed)}; taken as such"] if read.assumed else []
        said += [f"not known here: {', '.join(read.unknown)}"] if read.unknown else []
        return tuple(said)


def asked(question: Question, given: Mapping[str, Any]) -> Asked:
    """What a command line asks: settings of a framework where they are given, else options and strategy."""
    name = given.get("settings_file")
    if not name:
        if given.get("settings_format"):
            raise BadInput("--format says how to read --settings, which is not given; give --settings FILE")
        strategy = strategy_of(question)
        return Asked(situation_of(question), strategy)
    return _from_settings(question, name, given.get("settings_format"))


def _from_settings(question: Question, name: str, form: str | None) -> Asked:
    """Read settings beside the stated model, cluster and job."""
    from planner.formats.registry import find_out, read_settings
    from planner.formats.settings import Beside
    from planner.situation import situate

    if not question.cluster:
        raise BadInput("settings do not say on what they run; give --cluster", pointer="/cluster")
    cluster = load_cluster_input(question.cluster)
    model = load_model_input(question.model) if question.model else None
    version = str(question.job.get("engine", "")).partition("@")[2]
    text = read_text(name, "settings")
    settings = read_settings(
        text, form or find_out(text, name), Beside(cluster.num_devices, model, question.job, version)
    )
    if model is not None and model.num_layers != settings.model.num_layers:
        raise BadInput(
            f"--model {model.name} has {model.num_layers} layers, the settings build {settings.model.num_layers}; "
            "leave --model out or give the one that they train",
            pointer="/model",
        )
    job = validated(JobRequest, _merged(settings.job, question.job), "job")
    strategy = settings.strategy
    if question.strategy:
        stated = strategy_of(question).model_dump(exclude_none=True)
        strategy = strategy.model_copy(update=stated)
    return Asked(situate(model or settings.model, cluster, job), strategy, settings)


def _merged(read: JobRequest, stated: Mapping[str, object]) -> dict[str, object]:
    """The job that was read, with what was stated beside it."""
    values = read.model_dump(mode="json") | {key: value for key, value in stated.items() if key != "options"}
    options = stated.get("options")
    return values | {"options": {**read.options, **(options if isinstance(options, Mapping) else {})}}
