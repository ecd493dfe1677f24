"""Plans of a service for people: one line each."""

from collections.abc import Mapping, Sequence
from typing import Any

from cost_models.units import format_seconds
from planner.render.console import make_console, plain


def show_plans(plans: Sequence[Mapping[str, Any]], next_cursor: str | None) -> None:
    """Id, state, name, when it was asked, the best step; then how to ask for the next page."""
    console = make_console()
    if not plans:
        console.print("no plans")
    for plan in plans:
        progress = plan.get("progress") or {}
        step_s = progress.get("best_step_s")
        step = f"step {format_seconds(step_s)}" if step_s else ""
        parts = (plan["id"], plan.get("state", "deleted"), plan.get("created_at", ""), step, plan.get("name"))
        console.print(plain("  ".join(str(part) for part in parts if part)))
    if next_cursor:
        console.print(plain(f"more: --cursor {next_cursor}"))
