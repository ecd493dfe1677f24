"""Size limits of files and functions, and words that must not be committed."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cost_models", "planner", "api")
# A little above the limits of CONTRIBUTING.md (300 and 40): those are aims, these are walls.
MAX_FILE_LINES = 350
MAX_FUNCTION_LINES = 50
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".cfg", ""}

# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(work|root|home|Users)/" + r"\w"),
    "a left-over note": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "a host of a package registry": re.compile(r"(py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.org)"),
}

SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def committed_files() -> list[Path]:
    """Files that git tracks or would track; every file where git cannot tell."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so what is committed is not known")
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    num_lines = text.count("\n")
    assert num_lines <= MAX_FILE_LINES, f"{num_lines} lines; make it a folder of the same name"
    functions = [
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {
        node.name: size
        for node in functions
        if (size := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long, f"functions over {MAX_FUNCTION_LINES} lines: {long}"


def test_no_forbidden_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {what}"
        for path in committed_files()
        if path.suffix in TEXT_SUFFIXES and path.name != "LICENSE"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_tests_are_no_packages() -> None:
    # tests/planner with an __init__.py would shadow the planner package.
    assert not list((ROOT / "tests").rglob("__init__.py"))
