"""`python -m planner.executor.measured cpu|gpu [--tiny] [-o DIR]`: run the cases, write results.json and table.md."""

import argparse
import json
import sys
import time
from pathlib import Path

from planner.executor.measured.cases import Case, cpu_cases, gpu_cases
from planner.executor.measured.compare import Row, markdown, run_cases

START, END = "<!-- measured:{name} -->", "<!-- /measured:{name} -->"


def main() -> None:
    """Run what the command line asks for."""
    arguments = _parse()
    cases = _cases(arguments)
    started = time.monotonic()

    def on_row(row: Row) -> None:
        steps = f"step {row.predicted_step_s:.3g} s predicted, {row.measured_step_s:.3g} s measured"
        what = row.failure or f"memory {row.memory_ratio:.2f} of measured, {steps}"
        sys.stderr.write(f"{time.monotonic() - started:5.0f} s  {row.name}: {what}\n")

    rows = run_cases(cases, on_row, arguments.most_seconds)
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    text = "\n".join(markdown(rows)) + "\n"
    (folder / "table.md").write_text(text)
    sys.stdout.write(text)
    if arguments.document:
        put_into(arguments.document, arguments.where, text)
    sys.exit(1 if any(row.failure for row in rows) else 0)


def put_into(document: Path, name: str, text: str) -> None:
    """Replace what stands between a document's marks of this name."""
    start, end = START.format(name=name), END.format(name=name)
    before, _, rest = document.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{start}\n{text}{end}{after}", encoding="utf-8")


def _cases(arguments: argparse.Namespace) -> list[Case]:
    if arguments.where == "cpu":
        cases = cpu_cases(arguments.steps, tiny=arguments.tiny)
    else:
        cases = gpu_cases(arguments.steps, arguments.cluster, tiny=arguments.tiny)
    return [case for case in cases if arguments.only in case.name]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m planner.executor.measured")
    parser.add_argument("where", choices=("cpu", "gpu"))
    parser.add_argument(
        "--steps", type=int, default=3, help="optimizer steps of each plan; the first is not judged"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="the same plans of models that any machine can run"
    )
    parser.add_argument("--cluster", default="dgx-h200", help="preset whose device the GPU is")
    parser.add_argument("--most-seconds", type=float, default=3600.0, help="begin no plan after so long")
    parser.add_argument("--only", default="", help="plans whose name holds this text")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/measured"))
    parser.add_argument("--document", type=Path, help="also put the table between the marks of this document")
    return parser.parse_args()


if __name__ == "__main__":
    main()
