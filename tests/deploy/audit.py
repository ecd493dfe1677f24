"""`python -m tests.deploy.audit constraints.txt`: known weaknesses of the pinned packages.

Asks the package index's own database, then OSV's. Exit codes: 0 nothing is known, 1 something is (or a package is in
no database), 4 no database can be reached, so that nothing was checked but whether a pin was withdrawn from the index.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CLEAN, FOUND, UNREACHED = 0, 1, 4
SERVICES: Final = ("pypi", "osv")
TIMEOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What one database says: packages with weaknesses, packages that it does not have; `failure` where it is away."""

    weak: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    failure: str = ""


def answer_of(text: str, words: str) -> Answer:
    """The answer in pip-audit's JSON; `words` is what it wrote beside it."""
    try:
        packages = json.loads(text)["dependencies"]
    except (ValueError, KeyError, TypeError):
        lines = [line for line in words.strip().splitlines() if line.strip()]
        return Answer(failure=lines[-1][:300] if lines else "no answer")
    unknown = tuple(package["name"] for package in packages if "skip_reason" in package)
    if packages and len(unknown) == len(packages):
        return Answer(failure=f"it has none of the {len(packages)} packages, so it is not the public one")
    return Answer(tuple(_weaknesses(packages)), unknown)


def verdict(answers: Mapping[str, Answer]) -> tuple[int, list[str]]:
    """Exit code and lines of what the databases said."""
    reached = {name: answer for name, answer in answers.items() if not answer.failure}
    if not reached:
        lines = [f"database {name} cannot be asked: {answer.failure}" for name, answer in answers.items()]
        lines.append(
            "nothing was checked for known weaknesses; run make audit where a database can be reached"
        )
        return UNREACHED, lines
    lines = [line for answer in reached.values() for line in answer.weak]
    nowhere = set.intersection(*(set(answer.unknown) for answer in reached.values()))
    lines += [f"{name}: in no database that was asked" for name in sorted(nowhere)]
    return (FOUND if lines else CLEAN), lines or [f"nothing is known against the pins ({', '.join(reached)})"]


def withdrawn(report: Mapping[str, Any]) -> list[str]:
    """Pins that were withdrawn from the index, from pip's report of an installation."""
    return [
        f"{item['metadata']['name']} {item['metadata']['version']}: withdrawn from the index"
        for item in report["install"]
        if item.get("is_yanked")
    ]


def main(constraints: Path) -> int:
    """Ask everyone that can be asked; the exit code."""
    answers: dict[str, Answer] = {}
    for service in SERVICES:
        answers[service] = _ask(service, constraints)
        if not answers[service].failure:
            break
    code, lines = verdict(answers)
    gone = _withdrawn(constraints)
    sys.stdout.write("\n".join([*lines, *gone]) + "\n")
    return FOUND if gone and code != FOUND else code


def _ask(service: str, constraints: Path) -> Answer:
    words = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--timeout", "15"]
    command = [sys.executable, "-m", "pip_audit", "-s", service, *words, "--requirement", str(constraints)]
    done = _run(command)
    return answer_of(done.stdout, done.stderr)


def _withdrawn(constraints: Path) -> list[str]:
    words = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-"]
    done = _run([sys.executable, "-m", "pip", "install", *words, "--requirement", str(constraints)])
    try:
        return withdrawn(json.loads(done.stdout))
    except (ValueError, KeyError):
        sys.stderr.write(f"whether pins were withdrawn is not known: {done.stderr.strip()[-300:]}\n")
        return []


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def _weaknesses(packages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for package in packages:
        for weakness in package.get("vulns", ()):
            fixed = ", ".join(weakness["fix_versions"]) or "no release"
            yield f"{package['name']} {package['version']}: {weakness['id']}; fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
