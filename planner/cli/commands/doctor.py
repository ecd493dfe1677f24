"""`planner doctor`: what is installed, which devices, which profiles."""

from typing import Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option


@click.command(name="doctor", short_help="What is installed here, which devices, which profiles.")
@json_option
def command(**given: Any) -> Answer:
    """Look at this machine and say what works, what is missing for more, and how to get it.

    Exit code 1 where planning itself would not work.
    """
    from planner.doctor import doctor_json, examine, is_healthy

    found = examine()

    def show() -> None:
        from planner.render.doctor import show_doctor

        show_doctor(found)

    return Answer(doctor_json(found), show, given["as_json"], YES if is_healthy(found) else NO)
