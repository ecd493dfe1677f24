"""A report as Markdown, short enough for a pull request."""

from collections.abc import Iterator, Mapping
from typing import Final

from cost_models.units import format_bytes, format_seconds
from planner.answers import BREAKDOWN_CAUSES, PlanResult, Prediction
from planner.report.content import Reported
from planner.report.markdown_reason import reason_lines
from planner.report.text import bar, plain
from planner.report.views import question_of

MAX_STAGES: Final = 32
VERDICTS: Final = {"fits": "✅ fits", "at_risk": "⚠️ at risk", "does_not_fit": "❌ does not fit"}


def markdown_report(reported: Reported) -> str:
    """The answer, memory and time as tables, runners-up and the proof."""
    lines = list(_head(reported))
    if reported.prediction is not None:
        lines += [*_figures(reported.prediction), *_memory(reported.prediction), *_time(reported.prediction)]
    if reported.why is not None:
        lines += [*reason_lines(reported.why, reported.names)]
    if reported.why is None or reported.why.kind == "explanation":
        lines += [*_alternatives(reported)]
    if reported.result is not None:
        lines += [*_relaxations(reported.result), *_proof(reported.result)]
    return "\n".join(lines) + "\n"


def _head(reported: Reported) -> Iterator[str]:
    asked = question_of(reported.situation)
    length = f"sequences of {asked['seq_len']:,}, " if asked["seq_len"] else ""
    what = "" if asked["seq_len"] else " samples"
    yield f"## {plain(asked['model'])} on {plain(asked['hardware'])}"
    yield ""
    yield f"{length}{asked['global_batch']:,}{what} a step, {asked['precision']}, {plain(asked['engine'])}"
    yield ""
    if reported.result is not None and reported.result.best is None:
        yield f"**{reported.result.status}** {plain(reported.result.reason)}"
        yield ""


def _figures(found: Prediction) -> Iterator[str]:
    memory = found.memory
    per_device = found.tokens_per_s_per_device
    rate = (
        f"{found.samples_per_s_per_device:,.3g} samples/s"
        if per_device is None
        else f"{per_device:,.0f} tokens/s"
    )
    yield f"`{found.strategy.text()}`"
    yield ""
    yield "| step | 90 % | per device | MFU | fullest device | verdict | P(out of memory) |"
    yield "|--:|--:|--:|--:|--:|---|--:|"
    yield (
        f"| {format_seconds(found.step_s)} "
        f"| {format_seconds(found.step_s_low)} to {format_seconds(found.step_s_high)} | {rate} | {found.mfu:.1%} "
        f"| {format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} "
        f"| {VERDICTS[found.verdict]} | {found.oom_probability:.1%} |"
    )
    yield ""
    yield from (f"> {plain(warning)}  " for warning in found.warnings)


def _memory(found: Prediction) -> Iterator[str]:
    stages = found.memory.stages
    causes = [cause for cause in stages[0].by_cause if any(stage.by_cause[cause] > 0 for stage in stages)]
    yield "### Memory of every stage at its peak"
    yield ""
    yield f"| stage | {' | '.join(causes)} | on device | |"
    yield f"|--:|{'--:|' * (len(causes) + 1)}---|"
    for stage in stages[:MAX_STAGES]:
        parts = " | ".join(format_bytes(stage.by_cause.get(cause, 0.0)) for cause in causes)
        capacity = stage.capacity_bytes or found.memory.capacity_bytes
        used = stage.device_used_bytes
        yield f"| {stage.stage} | {parts} | {format_bytes(used)} | {bar(used / capacity)} |"
    if len(stages) > MAX_STAGES:
        yield f"| … | {len(stages) - MAX_STAGES} more |"
    yield ""


def _time(found: Prediction) -> Iterator[str]:
    yield f"### Where the step's time goes (stage {found.critical_stage}, the least idle)"
    yield ""
    yield "| cause | seconds | share | |"
    yield "|---|--:|--:|---|"
    parts: Mapping[str, float] = found.breakdown_s
    for cause in sorted(BREAKDOWN_CAUSES, key=lambda name: -parts[name]):
        if parts[cause] > 0.0:
            share = parts[cause] / found.step_s
            yield f"| {cause.replace('_', ' ')} | {format_seconds(parts[cause])} | {share:.1%} | {bar(share)} |"
    yield ""


def _alternatives(reported: Reported) -> Iterator[str]:
    best, *others = reported.candidates or (None,)
    if best is None or not others:
        return
    yield "### Runners-up"
    yield ""
    yield "| step | slower | MFU | on device | verdict | layout |"
    yield "|--:|--:|--:|--:|---|---|"
    for other in others:
        yield (
            f"| {format_seconds(other.step_s)} | {other.step_s / best.step_s - 1:+.1%} | {other.mfu:.1%} "
            f"| {format_bytes(other.memory.device_used_bytes)} | {VERDICTS[other.verdict]} "
            f"| {other.strategy.mesh_text()} |"
        )
    yield ""


def _relaxations(result: PlanResult) -> Iterator[str]:
    if not result.relaxations:
        return
    yield "### Smallest changes that would help"
    yield ""
    for each in result.relaxations:
        yield f"- **{plain(each.change)}** ({each.cost}): {plain(each.detail)}"
    yield ""


def _proof(result: PlanResult) -> Iterator[str]:
    made = result.certificate
    bound = "" if made.lower_bound_s is None else f", lower bound {format_seconds(made.lower_bound_s)}"
    gap = "" if made.gap is None else f", gap {made.gap:.3%}"
    illegal = sum(made.meshes_illegal.values())
    yield (
        f"**{result.status}**{bound}{gap}: {made.meshes_total:,} meshes = {illegal:,} illegal + "
        f"{made.meshes_out_of_memory:,} out of memory + {made.meshes_bounded:,} bounded + "
        f"{made.meshes_solved:,} solved + {made.meshes_open:,} open, in {format_seconds(made.wall_s)}."
    )
