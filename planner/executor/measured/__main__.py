"""`python -m planner.executor.measured cpu|gpu [--tiny] [-o DIR]`: run the cases, write results.json and table.md."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from cost_models.profiles import MEASURED_VARIABLE
from planner.executor.measured.cases import Case, cpu_cases, gpu_cases, profiled_models
from planner.executor.measured.compare import Row, markdown, run_cases
from planner.executor.profiled.describe import profile_json
from planner.executor.profiled.order import ProfileOrder
from planner.executor.profiled.run import profile_device

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

    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.profile_minutes:
        _profile(cases, folder, arguments.profile_minutes)
    rows = run_cases(cases, on_row, arguments.most_seconds)
    (folder / "results.json").write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")
    text = "\n".join(markdown(rows)) + "\n"
    (folder / "table.md").write_text(text)
    sys.stdout.write(text)
    if arguments.document:
        put_into(arguments.document, arguments.where, text)
    sys.exit(1 if any(row.failure for row in rows) else 0)


def _profile(cases: list[Case], folder: Path, minutes: float) -> None:
    """Measure the device with the cases' models, into the folder of the results; their predictions use it."""
    order = ProfileOrder(
        precision="bf16" if cases[0].order.situation.job.precision.value == "bf16" else "fp32",
        budget_s=60.0 * minutes,
        models=profiled_models(cases),
    )
    found = profile_device(order, folder / "profile", alone=True)
    os.environ[MEASURED_VARIABLE] = str(folder / "profile")
    text = json.dumps(profile_json(found, order), indent=1, default=str)
    (folder / "profile.json").write_text(text + "\n")
    sys.stderr.write(f"profile {found.title}: {len(found.points)} points\n")


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
    parser.add_argument(
        "--profile-minutes", type=float, default=0.0, help="first measure the device with the cases' models"
    )
    parser.add_argument("--most-seconds", type=float, default=3600.0, help="begin no plan after so long")
    parser.add_argument("--only", default="", help="plans whose name holds this text")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/measured"))
    parser.add_argument("--document", type=Path, help="also put the table between the marks of this document")
    return parser.parse_args()


if __name__ == "__main__":
    main()
