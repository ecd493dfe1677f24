"""Accuracy: predictions beside the published runs that the profiles hold."""

from typing import Any


def accuracy() -> dict[str, Any]:
    """The object of `planner validate --json` for the published runs, and what it stands on; takes seconds."""
    from cost_models.profiles import profiles_root, profiles_sha256
    from planner.validation import validate_file
    from planner.version import planner_version

    report = validate_file(profiles_root() / "published" / "runs.csv").to_json()
    return report | {"profiles_sha256": profiles_sha256(), "planner_version": planner_version()}
