"""Every command of the documents is run, in order of its page, in a folder with the files that it names."""

import io
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

import pytest

from planner.cli.group import planner

ROOT = Path(__file__).resolve().parents[2]
WORKBENCH = Path(__file__).parent / "workbench"
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
SKIPPED = {
    r"^planner run ": "trains for minutes; tests/planner/executor runs plans",
    r"^planner (profile|loop)\b": "measures for minutes; tests of the profiler run a short one",
    r"--server ": "asks a server; tests/api runs one",
    r"…": "an abbreviation",
    r"^planner validate ": "predicts 600 runs; make accuracy does",
    r"deepseek-v3": "minutes of a busy machine; make demo plans it",
    r"^planner sweep ": "plans a dozen situations; tests/planner/sweep does",
    r"--cluster ours\.toml": "a cluster that profiling the reader's devices writes",
    r"^planner checkpoint ": "a folder that training writes; tests of checkpoints read one",
    r"^planner calibrate run_": "tables that runs write; tests of runs calibrate with some",
    r"^planner probe .*--run": "trains for minutes; tests of probes run one",
}
MAY_SAY_NO = ("planner check", "planner explain", "planner size", "planner calibrate")
"""Exit code 1 is an answer, too: no."""


def commands_of(text):
    """Lines that start with planner in code blocks, continuations joined and comments dropped."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"(?:^ {4}[^\n]*\n)+", plain, flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", "\n".join(blocks)).splitlines()
    starts = (line.strip().removeprefix("$ ") for line in lines)
    return [re.sub(r"\s+#.*$", "", line).strip() for line in starts if re.match(r"planner [a-z]+( |$)", line)]


def reason_to_skip(command):
    """Why a command is not run here; nothing where it is."""
    return next((why for pattern, why in SKIPPED.items() if re.search(pattern, command)), "")


@cache
def documented():
    """Page -> commands."""
    return {page: commands_of((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A folder with the files that the documents name."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copytree(WORKBENCH, folder, dirs_exist_ok=True)
    config = ROOT / "profiles" / "models" / "llama-3.2-1b.json"
    shutil.copy(config, folder / "config.json")
    (folder / "llama").mkdir()
    shutil.copy(config, folder / "llama" / "config.json")
    rows = (
        (ROOT / "profiles" / "published" / "runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    ours = [rows[0], *(row for row in rows if row.startswith("korth-"))]
    (folder / "ours.csv").write_text("".join(ours), encoding="utf-8")
    model = "--model llama-3.1-8b --cluster dgx-h100:64 --seq-len 4096 --global-batch 448"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(f"planner plan {model} -o plan.json") == 0
        assert run("planner export plan.json --to megatron -o out") == 0
        shutil.copy(folder / "out" / "train.sh", folder / "train.sh")
    return folder


def run(command):
    """The exit code of a command line, run in this process."""
    with pytest.raises(SystemExit) as ended:
        planner.main(shlex.split(command)[1:])
    return int(ended.value.code or 0)


LONG = ("README.md", "docs/commands.md", "docs/objectives.md")
"""Pages whose plans, sizes and fronts take half a minute each: run by `make system`."""


def marked(page):
    """A page with its marker."""
    return pytest.param(page, marks=pytest.mark.system if page in LONG else pytest.mark.slow)


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if documented()[page]])
def test_commands_of_a_page_run(bench, page, tmp_path, monkeypatch, capsys):
    shutil.copytree(bench, tmp_path, dirs_exist_ok=True)  # a page may write over what it finds
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    for command in dict.fromkeys(documented()[page]):
        if reason_to_skip(command):
            continue
        code = run(command)
        said = capsys.readouterr()
        assert code == 0 or (code == 1 and command.startswith(MAY_SAY_NO)), (command, code, said.err[-500:])


def test_skips_are_few_and_have_reasons():
    every = [command for commands in documented().values() for command in commands]
    skipped = [command for command in every if reason_to_skip(command)]
    assert len(every) > 90
    assert len(skipped) <= 0.4 * len(every), f"{len(skipped)} of {len(every)} commands are not run"
    unused = [pattern for pattern in SKIPPED if not any(re.search(pattern, command) for command in every)]
    assert unused == []


def test_commands_are_found_in_both_kinds_of_blocks():
    page = "```\n$ planner plan a \\\n  b  # why\n```\ntext planner plan\n\n    planner check x\n"
    assert commands_of(page) == ["planner plan a b", "planner check x"]
