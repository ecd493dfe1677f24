"""What was found out about a layout, as Markdown: an explanation, another strategy against it, or two plans."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cost_models.units import format_bytes, format_seconds
from planner.explain.differences import FOLLOWING_KEYS, SMALL_SHARE, signed_bytes, signed_seconds
from planner.report.reason import Reason
from planner.report.text import bar, plain

MAX_ROWS: Final = 32
TITLES: Final = {
    "slower": "Slower",
    "faster": "⚠️ Faster",
    "same": "The same",
    "does_not_fit": "❌ Does not fit",
    "illegal": "❌ Illegal",
    "unknown": "Not known",
}


def reason_lines(reason: Reason, names: tuple[str, ...]) -> Iterator[str]:
    """The lines of one reason; `names` are those of a comparison's two sides."""
    if reason.kind == "explanation":
        yield from _explanation(reason.found)
    elif reason.kind == "contrast":
        yield from _contrast(reason.found)
    else:
        yield from _comparison(reason.found, names)


def _explanation(found: Mapping[str, Any]) -> Iterator[str]:
    yield "### Why this plan"
    yield ""
    yield plain(found["summary"])
    yield ""
    yield "| stage | works | could work longer | its time follows | free memory | one more layer takes |"
    yield "|--:|--:|--:|---|--:|--:|"
    for stage in found["stages"][:MAX_ROWS]:
        shares = sorted(stage["shares"].items(), key=lambda item: -item[1])[:3]
        follows = ", ".join(f"{plain(_resource(key))} {share:.0%}" for key, share in shares if share >= 0.005)
        memory = stage["memory"]
        yield (
            f"| {stage['stage']} | {format_seconds(stage['busy_s'])} | {format_seconds(stage['slack_s'])} | {follows} "
            f"| {format_bytes(memory['room_bytes'])}{' ⚠️' if memory['binds'] else ''} "
            f"| {format_bytes(memory['block_bytes'])} |"
        )
    if len(found["stages"]) > MAX_ROWS:
        yield f"| … | {len(found['stages']) - MAX_ROWS} more | | | | |"
    yield ""
    yield from _choices(found)
    yield from _hardware(found)


def _choices(found: Mapping[str, Any]) -> Iterator[str]:
    yield "#### What each choice costs or saves"
    yield ""
    yield "| choice | step | slower | where | fullest stage | how |"
    yield "|---|--:|--:|---|--:|---|"
    base = float(found["plan"]["step_s"])
    for axis in found["axes"]:
        for other in axis["alternatives"]:
            choice = f"{axis['axis']} {plain(axis['value'])} → {plain(other['value'])}"
            moved = other.get("difference")
            if moved is None:
                yield f"| {choice} | | | {plain(other['sentence'])} | | {other['how']} |"
                continue
            worst = signed_bytes(moved["memory"]["worst_bytes"])
            yield (
                f"| {choice} | {format_seconds(other['step_s'])} | {moved['step_s'] / base:+.1%} "
                f"| {_where(moved['breakdown_s'], base)} | {worst} | {other['how']} |"
            )
    yield ""


def _hardware(found: Mapping[str, Any]) -> Iterator[str]:
    yield "#### What better hardware would buy"
    yield ""
    yield "| change | step | less | how |"
    yield "|---|--:|--:|---|"
    for change in found["sensitivity"]:
        after = "" if change["step_s"] is None else format_seconds(change["step_s"])
        gain = "" if change["gain"] is None else f"{change['gain']:.1%}"
        yield f"| {plain(change['change'])} | {after} | {gain} | {plain(change['why'] or change['how'])} |"
    yield ""


def _contrast(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"### Why not {plain(found['asked'])}?"
    yield ""
    yield f"**{TITLES.get(found['verdict'], found['verdict'])}.** {plain(found['sentence'])}"
    yield ""
    if found["difference"] is not None:
        yield from _difference(found["difference"], ("the plan", "asked"))


def _comparison(found: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    first, second = names
    yield f"### {plain(first)} and {plain(second)}"
    yield ""
    yield plain(found["sentence"])
    yield ""
    if found["question"]:
        yield "| the question | first | second |"
        yield "|---|---|---|"
        for key, (ours, theirs) in found["question"].items():
            yield f"| {plain(key)} | {plain(ours)} | {plain(theirs)} |"
        yield ""
    yield from _difference(found["difference"], ("first", "second"))


def _difference(moved: Mapping[str, Any], names: tuple[str, str]) -> Iterator[str]:
    """Knobs, then seconds by cause; second minus first."""
    knobs = {key: pair for key, pair in moved["knobs"].items() if key not in FOLLOWING_KEYS}
    if knobs:
        yield f"| knob | {names[0]} | {names[1]} |"
        yield "|---|---|---|"
        yield from (f"| {key} | {plain(ours)} | {plain(theirs)} |" for key, (ours, theirs) in knobs.items())
        yield ""
    yield f"| cause | {names[1]} less {names[0]} | |"
    yield "|---|--:|---|"
    parts = sorted(moved["breakdown_s"].items(), key=lambda item: -abs(item[1]))
    scale = max((abs(value) for _, value in parts), default=0.0) or 1.0
    for cause, value in parts:
        if abs(value) > 1e-4 * scale:
            yield f"| {cause.replace('_', ' ')} | {signed_seconds(value)} | {bar(abs(value) / scale)} |"
    yield f"| **step** | **{signed_seconds(moved['step_s'])}** | |"
    yield f"| **memory of the fullest stage** | **{signed_bytes(moved['memory']['worst_bytes'])}** | |"
    yield ""


def _where(breakdown: Mapping[str, float], base: float) -> str:
    """The causes that moved most."""
    moved = sorted(
        ((cause, value) for cause, value in breakdown.items() if abs(value) > SMALL_SHARE * base),
        key=lambda item: -abs(item[1]),
    )
    return ", ".join(f"{signed_seconds(value)} {cause.replace('_', ' ')}" for cause, value in moved[:3])


def _resource(key: str) -> str:
    return f"{key[5:]} links" if key.startswith("link:") else key.replace("_", " ")
