"""Many checks as one gate, and the baseline that they are held against."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cost_models.errors import BadInput
from planner.checking import CheckReport

SCHEMA_VERSION: Final = 1
KEPT: Final = ("verdict", "fits", "step_s", "memory", "strategy", "configuration", "made_with")
"""Keys of a check that a baseline keeps: what regressions are counted from, and what tells who moved a number."""


@dataclass(frozen=True, slots=True)
class NamedCheck:
    """One job of a gate: its report, or why there is none (`refusal`: bad input or an illegal strategy)."""

    name: str
    report: CheckReport | None
    refusal: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the answer is yes."""
        return self.report is not None and self.report.passed

    @property
    def failures(self) -> tuple[str, ...]:
        """What speaks against it."""
        return self.report.failures if self.report else (self.refusal,)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What does not speak against it but should be read."""
        return (self.report.warnings if self.report else ()) + self.notes

    def to_json(self) -> dict[str, object]:
        """One entry of `jobs`."""
        found: dict[str, object] = {"name": self.name}
        if self.report is None:
            return found | {"passed": False, "failures": [self.refusal], "regressions": [], "warnings": []}
        return found | self.report.to_json() | {"warnings": list(self.warnings)}


def gate_json(checks: tuple[NamedCheck, ...]) -> dict[str, object]:
    """`planner check --json` of several jobs."""
    return {
        "passed": all(check.passed for check in checks),
        "failed": [check.name for check in checks if not check.passed],
        "jobs": [check.to_json() for check in checks],
    }


def baseline_document(checks: tuple[NamedCheck, ...]) -> dict[str, object]:
    """What `planner baseline` writes; raises BadInput where a job has no prediction to keep."""
    refused = [check for check in checks if check.report is None]
    if refused:
        raise BadInput(f"job {refused[0].name} has no prediction to keep: {refused[0].refusal}")
    kept = {}
    for check in checks:
        values = check.to_json()
        kept[check.name] = {key: values[key] for key in KEPT if key in values}
    return {"schema_version": SCHEMA_VERSION, "jobs": kept}


def baseline_of(
    document: Mapping[str, Any] | None, name: str
) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
    """A job's entry of a baseline and what to note; a baseline of one prediction holds for every job.

    Raises BadInput for a baseline of another schema.
    """
    if document is None or "jobs" not in document:
        return document, ()
    jobs = document["jobs"]
    if document.get("schema_version") != SCHEMA_VERSION or not isinstance(jobs, Mapping):
        raise BadInput(
            f"baseline of schema {document.get('schema_version')!r:.40}; write it again with planner baseline"
        )
    found = jobs.get(name)
    if isinstance(found, Mapping):
        return found, ()
    return None, (f"the baseline has no job {name}; write it again with planner baseline",)
