"""`planner baseline`: the numbers that later checks are held against, as a file to commit."""

from pathlib import Path
from typing import Any

import click

from planner.cli.answer import YES, Answer
from planner.cli.document import read_document
from planner.cli.jobs_file import JobEntry, JobsFile, jobs_of
from planner.cli.options import json_option, progress_option
from planner.cli.question import Question, question_of_document


@click.command(name="baseline", short_help="Numbers for later checks, as a file to commit.")
@click.argument("source", metavar="planner.yaml|PLAN.json")
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write; default planner-baseline.json beside SOURCE."
)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Predict every job of a file and write what `planner check --baseline` compares with.

    Exit code 0 where it was written, 2 where a job cannot be predicted. A job that does not fit is kept as such.
    """
    from planner.checking import Limits
    from planner.cli.commands.check import checks_of
    from planner.gate import baseline_document
    from planner.plan_file import write_json
    from planner.render import show_checks

    source = given["source"]
    document = read_document(source)
    listed = jobs_of(document) or JobsFile((JobEntry(source, question_of_document(document), {}),), {})
    checks = checks_of(listed, Question(), Limits(), None)
    kept = baseline_document(checks)
    output = Path(given["output"]) if given["output"] else Path(source).parent / "planner-baseline.json"
    write_json(output, kept, "baseline", "-o")

    def show() -> None:
        show_checks(checks)
        click.echo(f"wrote {output}; next: planner check {source} --baseline {output}")

    return Answer(kept | {"written": str(output)}, show, given["as_json"], YES)
