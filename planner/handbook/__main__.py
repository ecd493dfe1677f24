"""`python -m planner.handbook [DOCS]`: fill tables, draw figures, write the reference."""

from pathlib import Path

import click

from cost_models.profiles import measured_from
from planner.handbook.figures import write_figures
from planner.handbook.pages import write_pages
from planner.handbook.reference import write_reference


@click.command()
@click.argument("docs", type=click.Path(exists=True, file_okay=False, path_type=Path), default="docs")
def main(docs: Path) -> None:
    """Write all of it below the folder of the documents."""
    with measured_from(None):  # documents do not hang on the machine that writes them
        write_pages(docs)
        write_figures(docs / "concepts" / "figures")
        write_reference(docs / "reference")


if __name__ == "__main__":
    main()
