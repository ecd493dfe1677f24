"""Checkpoints as plain values: one row each. Needs no torch."""

from collections.abc import Sequence

from planner.executor.checkpoint.store import Entry


def checkpoint_table(entries: Sequence[Entry]) -> dict[str, object]:
    """`planner checkpoint show --json`: rows by step, and the path of the last good one."""
    good = [entry for entry in entries if entry.is_valid]
    return {
        "checkpoints": [_row(entry) for entry in entries],
        "last_good": str(good[-1].path) if good else None,
    }


def _row(entry: Entry) -> dict[str, object]:
    manifest = entry.manifest
    facts = manifest.facts if manifest is not None else {}
    return {
        "step": entry.step,
        "path": str(entry.path),
        "valid": entry.is_valid,
        "problem": entry.problem,
        "bytes": manifest.num_bytes if manifest is not None else None,
        "next_sample": manifest.next_sample if manifest is not None else None,
        "parameters": manifest.elements if manifest is not None else None,
        "layout": _short_layout(facts.get("strategy")),
        **{
            name: facts.get(name)
            for name in ("model", "engine", "optimizer", "precision", "world_size", "strategy")
        },
    }


def _short_layout(strategy: object) -> str | None:
    """The axes with more than one rank."""
    if not isinstance(strategy, dict):
        return None
    axes = [
        f"{axis}={strategy[axis]}" for axis in ("tp", "cp", "pp", "ep", "dp") if strategy.get(axis, 1) != 1
    ]
    return ",".join([*axes, f"zero={strategy.get('zero', 0)}"])
