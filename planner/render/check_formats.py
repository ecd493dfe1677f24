"""Checks in the formats that CI systems read: GitHub annotations, JUnit XML, SARIF 2.1.0, Markdown."""

import json
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from cost_models.units import format_bytes, format_seconds
from planner.checking import CheckReport
from planner.gate import NamedCheck
from planner.version import planner_version

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL: Final = "parallelism-planner"
Checks = tuple[NamedCheck, ...]


def format_checks(checks: Checks, style: str, source: str) -> str:
    """The checks in one of github, junit, sarif, markdown; `source` names the file they come from."""
    writers = {"github": _github, "junit": _junit, "sarif": _sarif, "markdown": _markdown}
    return writers[style](checks, source)


def _summary(check: NamedCheck) -> str:
    report = check.report
    if report is None:
        return "no prediction"
    memory = report.prediction.memory
    return (
        f"{report.prediction.verdict}: {format_bytes(memory.device_used_bytes)} of "
        f"{format_bytes(memory.capacity_bytes)} on pipeline rank {memory.worst_stage}, "
        f"step {format_seconds(report.prediction.step_s)}, MFU {report.prediction.mfu:.1%}"
    )


def _github(checks: Checks, source: str) -> str:
    """Workflow commands; percent signs and line ends are escaped as GitHub documents."""
    lines = []
    for check in checks:
        found = [("error", failure) for failure in check.failures]
        found += [("warning", warning) for warning in check.warnings]
        found.append(("notice", _summary(check)))
        lines += [f"::{level} title={_command(check.name, True)}::{_command(text)}" for level, text in found]
    return "\n".join(lines)


def _command(text: str, is_property: bool = False) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped.replace(":", "%3A").replace(",", "%2C") if is_property else escaped


def _junit(checks: Checks, source: str) -> str:
    failed = sum(not check.passed for check in checks)
    cases = "".join(_case(check) for check in checks)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="{TOOL}" tests="{len(checks)}" failures="{failed}" errors="0">\n{cases}</testsuite>'
    )


def _case(check: NamedCheck) -> str:
    failure = "".join(f"    <failure message={quoteattr(_xml(text))}/>\n" for text in check.failures[:1])
    details = "\n".join((*check.failures, *check.warnings, _summary(check)))
    return (
        f'  <testcase classname="{TOOL}" name={quoteattr(_xml(check.name))}>\n'
        f"{failure}    <system-out>{escape(_xml(details))}</system-out>\n"
        "  </testcase>\n"
    )


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return "".join(c for c in text if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff"))


def _sarif(checks: Checks, source: str) -> str:
    location = [{"physicalLocation": {"artifactLocation": {"uri": source.replace(" ", "%20")}}}]
    found = [
        (rule, level, text if len(checks) == 1 else f"{check.name}: {text}")
        for check in checks
        for rule, level, texts in (
            ("check-failed", "error", check.failures),
            ("check-warning", "warning", check.warnings),
        )
        for text in texts
    ]
    results = [
        {"ruleId": rule, "level": level, "message": {"text": text}, "locations": location}
        for rule, level, text in found
    ]
    driver = {
        "name": TOOL,
        "version": planner_version(),
        "rules": [{"id": "check-failed"}, {"id": "check-warning"}],
    }
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=1)


def _markdown(checks: Checks, source: str) -> str:
    """A pull-request comment: one job as a table of its numbers, several as a table of jobs."""
    parts = [_markdown_job(check) for check in checks]
    if len(checks) == 1:
        return parts[0]
    rows = [
        f"| {_cell(check.name)} | {'pass' if check.passed else '**fail**'} | {_cell(_summary(check))} |"
        for check in checks
    ]
    table = "\n".join([f"### {_cell(source)}", "", "| job | answer | prediction |", "|---|---|---|", *rows])
    return "\n\n".join(
        [table, *(part for part, check in zip(parts, checks, strict=True) if not check.passed)]
    )


def _markdown_job(check: NamedCheck) -> str:
    lines = [f"### {_cell(check.name)}", "", "| | |", "|---|---|"]
    lines.append(f"| answer | {'pass' if check.passed else '**fail**'} |")
    if check.report is not None:
        lines += [f"| {name} | {_cell(value)} |" for name, value in _rows(check.report).items()]
    notes = [f"- fails: {_cell(text)}" for text in check.failures]
    notes += [f"- warning: {_cell(text)}" for text in check.warnings]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _rows(report: CheckReport) -> dict[str, str]:
    """The numbers of one job."""
    memory = report.prediction.memory
    return {
        "verdict": report.prediction.verdict,
        "strategy": f"`{report.prediction.strategy.mesh_text()}`",
        "step": format_seconds(report.prediction.step_s),
        "MFU": f"{report.prediction.mfu:.1%}",
        "memory on device": f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)}",
        "margin": format_bytes(memory.margin_bytes),
        "P(out of memory)": f"{report.prediction.oom_probability:.1%}",
    }


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
