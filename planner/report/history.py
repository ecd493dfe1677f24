"""How a search went: when the best step and the bound moved."""

from typing import Any

from planner.answers import Progress


def event_of(progress: Progress, at_s: float) -> dict[str, Any]:
    """One line of the search's history."""
    return {
        "at_s": round(at_s, 3),
        "lower_bound_s": progress.lower_bound_s,
        "best_step_s": progress.best_step_s,
        "gap": progress.gap,
        "meshes_done": progress.meshes_done,
        "meshes_total": progress.meshes_total,
    }


def thinned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those events in which the best step or the bound moved, and the last."""
    kept: list[dict[str, Any]] = []
    for event in events:
        keys = ("lower_bound_s", "best_step_s")
        if not kept or any(event[key] != kept[-1][key] for key in keys) or event is events[-1]:
            kept.append(event)
    return kept
