"""Progress of a search on standard error: JSON lines when asked for, one renewed line on a terminal."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from cost_models.units import format_bytes, format_seconds
from planner.answers import Progress, finite

QUIET_S: Final = 2.0
"""Searches shorter than this show nothing."""
RENEW_S: Final = 0.2


def reporter(mode: str | None) -> Callable[[Progress], None] | None:
    """What to call with each Progress; None where nobody would see it."""
    if mode == "jsonl":
        return _write_line
    return _TerminalLine() if sys.stderr.isatty() else None


def row_reporter(mode: str | None) -> Callable[[int, int], None] | None:
    """What to call with each row of a table that is done; None where nobody would see it."""
    report = reporter(mode)
    if report is None:
        return None
    return lambda done, total: report(Progress("rows", detail={"done": done, "total": total}))


def step_reporter(mode: str | None, *, quiet: bool) -> Callable[[Mapping[str, Any]], None] | None:
    """What to call with each event of a run: JSON lines, a line a step for people, or None to stay quiet."""
    if mode == "jsonl":
        return _write_event
    return None if quiet else _write_step


def sweep_reporter(mode: str | None) -> Callable[[int, int, Mapping[str, Any]], None] | None:
    """What to call with each row of a sweep that is done; None where nobody would see it."""
    if mode == "jsonl":
        keys = ("key", "model", "cluster", "status", "rule", "step_s", "wall_s")
        return lambda done, total, row: _write_event(
            {"event": "row", "done": done, "total": total, **{key: row.get(key) for key in keys}}
        )
    rows = row_reporter(mode)
    return None if rows is None else lambda done, total, row: rows(done, total)


def end_progress() -> None:
    """Leave an empty line on the terminal where the progress line stood."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _write_line(progress: Progress) -> None:
    values = {
        "event": "progress",
        "phase": progress.phase,
        "lower_bound_s": progress.lower_bound_s,
        "best_step_s": progress.best_step_s,
        "gap": progress.gap,
        "meshes_done": progress.meshes_done,
        "meshes_total": progress.meshes_total,
        "detail": dict(progress.detail),
    }
    sys.stderr.write(json.dumps(finite(values), default=str) + "\n")
    sys.stderr.flush()


def _write_event(event: Mapping[str, Any]) -> None:
    sys.stderr.write(json.dumps(finite(dict(event)), default=str) + "\n")
    sys.stderr.flush()


def _write_step(event: Mapping[str, Any]) -> None:
    if event["event"] != "step":
        sys.stderr.write(_happening(event))
        sys.stderr.flush()
        return
    loss, norm = ("not finite" if event[k] is None else f"{event[k]:.5g}" for k in ("loss", "grad_norm"))
    peak = max(event["memory_bytes"])
    sys.stderr.write(
        f"step {event['step']}: {format_seconds(event['step_s'])}, {event['tokens_per_s']:,.0f} {event['unit']}/s, "
        f"loss {loss}, gradient norm {norm}, peak {format_bytes(peak)}\n"
    )
    sys.stderr.flush()


def _happening(event: Mapping[str, Any]) -> str:
    """A line about what happened between steps; nothing for what is said elsewhere."""
    match event["event"]:
        case "checkpoint":
            took = f"{format_bytes(event['bytes'])} in {format_seconds(event['seconds'])}"
            return f"checkpoint of step {event['step']}: {took}\n"
        case "resumed" if event["step"]:
            left_out = "".join(f", without {each}" for each in event["skipped"])
            changed = "".join(f"; note: {each}" for each in event["changed"])
            return f"going on after step {event['step']} of {event['path']}{left_out}{changed}\n"
        case "restarted":
            where = f"in step {event['step']} ({event['phase']})"
            return f"restarted: rank {event['rank']} ended {where}: {event['message']}\n"
    return ""


class _TerminalLine:
    """Writes at most one line, again and again in place, once the search has taken a while."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._started < QUIET_S or now - self._shown < RENEW_S:
            return
        self._shown = now
        sys.stderr.write(f"\r\x1b[K{_words(progress)[:100]}, {now - self._started:.0f} s")
        sys.stderr.flush()


def _words(progress: Progress) -> str:
    if not progress.meshes_total:
        return f"{progress.phase}: {', '.join(f'{key} {value}' for key, value in progress.detail.items())}"
    best = "none yet" if progress.best_step_s is None else format_seconds(progress.best_step_s)
    gap = "" if progress.gap is None else f", gap {progress.gap:.2%}"
    done = f"{progress.meshes_done:,} of {progress.meshes_total:,} meshes"
    return f"{progress.phase}: {done}, best step {best}{gap}"


def profile_reporter(mode: str | None, *, quiet: bool) -> Callable[[Mapping[str, Any]], None] | None:
    """What to call with each event of a profile or a loop: JSON lines, a bar and lines for people, or None."""
    if mode == "jsonl":
        return _write_event
    return None if quiet else _write_measured


BAR: Final = 30
"""Characters of a full bar."""


def _write_measured(event: Mapping[str, Any]) -> None:
    """A bar over the budget of a part, renewed in place on a terminal; a line for each layout that ran."""
    if event["event"] == "layout":
        end_progress()
        steps = f"{format_seconds(event['predicted_step_s'])}, measured {format_seconds(event['measured_step_s'])}"
        found = event["failure"] or f"predicted {steps}, load {event['load']:.1f}"
        sys.stderr.write(f"{event['layout']} on {event['processes']}: {found}\n")
    elif sys.stderr.isatty():
        share = min(event["spent_s"] / event["budget_s"], 1.0)
        full = round(share * BAR)
        words = f"{event['done']} of {event['cases']} cases, {event['processes']} at once"
        sys.stderr.write(f"\r\x1b[K[{'#' * full}{'.' * (BAR - full)}] {words}, {event['spent_s']:.0f} s")
    sys.stderr.flush()
