"""A planner.yaml that lists jobs: every job is a question of its own, with what stands above them as its default."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.suggest import did_you_mean
from planner.cli.document import Document
from planner.cli.inputs import shown
from planner.cli.question import FILE_KEYS, Question, question_of_mapping
from planner.cli.settings_file import Asked, asked

SHARED_KEYS: Final = (*FILE_KEYS, "settings", "format")
LIMIT_KEYS: Final = ("max_memory_fraction", "fail_at_risk", "max_slowdown", "max_memory_growth")
MOST_JOBS: Final = 1000


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One job of the file: its name, its question, and the settings file that it names."""

    name: str
    question: Question
    settings: Mapping[str, str]

    def ask(self, over: Question) -> Asked:
        """Situation and strategy, options of the command line over the file's."""
        return asked(over.over(self.question), self.settings)


@dataclass(frozen=True, slots=True)
class JobsFile:
    """The jobs of a file and the limits that it states."""

    jobs: tuple[JobEntry, ...]
    limits: Mapping[str, Any]


def jobs_of(document: Document) -> JobsFile | None:
    """The jobs of a planner.yaml; None where the file is one plain question. Raises BadInput naming what is wrong."""
    if document.is_json or not {"jobs", "settings", "limits"} & set(document.values):
        return None
    name = document.name
    values = {"jobs": [{"name": Path(name).name}]} | document.values
    shared = {key: value for key, value in values.items() if key not in ("jobs", "limits")}
    _known(shared, (*SHARED_KEYS, "jobs", "limits"), f"file {shown(name)}")
    limits = values.get("limits", {})
    if not isinstance(limits, Mapping):
        raise BadInput(f"limits holds a {type(limits).__name__}; give keys such as {', '.join(LIMIT_KEYS)}")
    _known(limits, LIMIT_KEYS, "limits")
    entries = values["jobs"]
    if not isinstance(entries, list) or not 1 <= len(entries) <= MOST_JOBS:
        raise BadInput(
            f"jobs has to be a list of 1 to {MOST_JOBS} entries, each with name, model, cluster and so on"
        )
    jobs = tuple(_entry(entry, index, shared, document.folder) for index, entry in enumerate(entries))
    names = [job.name for job in jobs]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise BadInput(f"two jobs are called {twice[:60]!r}; give every job a name of its own")
    return JobsFile(jobs, limits)


def _entry(values: object, index: int, shared: Mapping[str, Any], folder: Path) -> JobEntry:
    """One job over what stands above all jobs."""
    where = f"jobs.{index}"
    if not isinstance(values, Mapping):
        raise BadInput(f"{where} holds a {type(values).__name__}; give keys such as name, model and cluster")
    _known(values, ("name", *SHARED_KEYS), where)
    merged = {**shared, **{str(key): value for key, value in values.items() if key != "name"}}
    if "job" in shared and "job" in values:
        merged["job"] = _over(values["job"], shared["job"])
    settings = {}
    if merged.get("settings"):
        beside = folder / str(merged["settings"])
        settings["settings_file"] = str(beside) if beside.is_file() else str(merged["settings"])
    if merged.get("format"):
        settings["settings_format"] = str(merged["format"])
    question = question_of_mapping({key: merged[key] for key in FILE_KEYS if key in merged}, folder)
    return JobEntry(str(values.get("name", f"job {index + 1}"))[:80], question, settings)


def _over(own: object, above: object) -> object:
    """A job's own keys over the shared ones, its `options` key by key too."""
    if not isinstance(own, Mapping) or not isinstance(above, Mapping):
        return own
    merged = {**above, **own}
    if "options" in own and "options" in above:
        merged["options"] = _over(own["options"], above["options"])
    return merged


def _known(values: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            hint = did_you_mean(str(key), known)
            raise BadInput(
                f"{where} has the key {str(key)[:60]!r}, which is not known; {hint}keys: {', '.join(known)}"
            )


def refusal_of(error: BadInput) -> str:
    """Why a job has no prediction, in one sentence."""
    if isinstance(error, IllegalStrategy):
        return "; ".join(f"{violation.rule}: {violation.sentence()}" for violation in error.violations)
    return error.detail
