"""A check in the formats that CI systems read: GitHub annotations, JUnit XML, SARIF 2.1.0, Markdown."""

import json
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from cost_models.units import format_bytes, format_seconds
from planner.check import CheckReport
from planner.version import planner_version

SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL: Final = "parallelism-planner"


def format_check(report: CheckReport, style: str, subject: str) -> str:
    """The report in one of github, junit, sarif, markdown; `subject` names what was checked."""
    writers = {"github": _github, "junit": _junit, "sarif": _sarif, "markdown": _markdown}
    return writers[style](report, subject)


def _summary(report: CheckReport) -> str:
    memory = report.prediction.memory
    return (
        f"{report.prediction.verdict}: {format_bytes(memory.device_used_bytes)} of "
        f"{format_bytes(memory.capacity_bytes)} on pipeline rank {memory.worst_stage}, "
        f"step {format_seconds(report.prediction.step_s)}, MFU {report.prediction.mfu:.1%}"
    )


def _github(report: CheckReport, subject: str) -> str:
    """Workflow commands; percent signs and line ends are escaped as GitHub documents."""
    lines = [("error", failure) for failure in report.failures]
    lines += [("warning", warning) for warning in report.warnings]
    lines.append(("notice", _summary(report)))
    return "\n".join(f"::{level} title={_command(subject, True)}::{_command(text)}" for level, text in lines)


def _command(text: str, is_property: bool = False) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escaped.replace(":", "%3A").replace(",", "%2C") if is_property else escaped


def _junit(report: CheckReport, subject: str) -> str:
    failures = "".join(
        f"    <failure message={quoteattr(_xml(failure))}/>\n" for failure in report.failures[:1]
    )
    details = "\n".join((*report.failures, *report.warnings, _summary(report)))
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuite name="{TOOL}" tests="1" failures="{int(not report.passed)}" errors="0">\n'
        f'  <testcase classname="{TOOL}" name={quoteattr(_xml(subject))}>\n'
        f"{failures}    <system-out>{escape(_xml(details))}</system-out>\n"
        "  </testcase>\n</testsuite>"
    )


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return "".join(c for c in text if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff"))


def _sarif(report: CheckReport, subject: str) -> str:
    location = [{"physicalLocation": {"artifactLocation": {"uri": subject.replace(" ", "%20")}}}]
    found = [("check-failed", "error", text) for text in report.failures]
    found += [("check-warning", "warning", text) for text in report.warnings]
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


def _markdown(report: CheckReport, subject: str) -> str:
    memory = report.prediction.memory
    used = f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)}"
    rows = {
        "answer": "pass" if report.passed else "**fail**",
        "verdict": report.prediction.verdict,
        "strategy": f"`{report.prediction.strategy.mesh_text()}`",
        "step": format_seconds(report.prediction.step_s),
        "MFU": f"{report.prediction.mfu:.1%}",
        "memory on device": used,
        "margin": format_bytes(memory.margin_bytes),
        "P(out of memory)": f"{report.prediction.oom_probability:.1%}",
    }
    lines = [f"### {_cell(subject)}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    notes = [f"- fails: {_cell(text)}" for text in report.failures]
    notes += [f"- warning: {_cell(text)}" for text in report.warnings]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
