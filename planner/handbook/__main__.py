"""`python -m planner.handbook DOCS`: fill tables, draw figures, write the reference."""

import sys
from pathlib import Path

from planner.handbook.figures import write_figures
from planner.handbook.pages import write_pages
from planner.handbook.reference import write_reference


def main(arguments: list[str]) -> int:
    """Write all of it below the folder of the documents."""
    docs = Path(arguments[0] if arguments else "docs")
    write_pages(docs)
    write_figures(docs / "concepts" / "figures")
    write_reference(docs / "reference")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
