"""What the documents say exists: commands, links, make targets, decision records, versions."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED_FOLDERS = {".venv", ".venv-frameworks", "node_modules", "build", "dist", ".git"}


def markdown_files() -> list[Path]:
    """Every Markdown file of the project, outside generated folders."""
    found = ROOT.rglob("*.md")
    return sorted(path for path in found if not IGNORED_FOLDERS & set(path.relative_to(ROOT).parts))


def code_of(text: str) -> str:
    """Only what stands in code blocks and code spans: prose may say "the planner finds" freely."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(blocks + re.findall(r"`([^`\n]+)`", prose))


def documented(pattern: str) -> set[str]:
    """First group of the pattern over the code in README.md and CONTRIBUTING.md."""
    names = ("README.md", "CONTRIBUTING.md")
    code = "\n".join(code_of((ROOT / name).read_text(encoding="utf-8")) for name in names)
    return set(re.findall(pattern, code, flags=re.MULTILINE))


def anchors_of(text: str) -> set[str]:
    """Anchors of the headings, formed as code hosts form them."""
    without_code = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *#*$", without_code, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    """Relative links of one document that lead nowhere."""
    text = path.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        missing_anchor = anchor and target.suffix == ".md" and target.is_file()
        if not target.exists() or (
            missing_anchor and anchor not in anchors_of(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert not broken_links(path)


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](#one-two) [b](#three) [c](page.md) [d](gone.md)\n", encoding="utf-8")
    assert broken_links(page) == ["#three", "gone.md"]


@pytest.mark.parametrize("command", sorted(documented(r"(?:^|[\s/])(?<!from )planner +([a-z]+)\b")))
def test_documented_command_exists(command: str) -> None:
    program = "import sys; from planner.cli import main; sys.argv[0] = 'planner'; main()"
    arguments = [sys.executable, "-c", program, command, "--help"]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr


def test_documented_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    wanted = documented(r"(?:^|\s)make +([a-z]+)\b")
    assert wanted, "README.md and CONTRIBUTING.md should name the two commands"
    assert wanted <= targets


def test_decision_records_are_numbered_and_complete() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]
    assert numbers == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert {"context", "decision", "consequences"} <= anchors_of(text), path.name


def test_changelog_knows_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{project['version']}]" in changelog
