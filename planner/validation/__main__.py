"""`python -m planner.validation [--write]`: fit, and write docs/accuracy.md from the published runs.

Without the option the constants in the profiles stay as they are and only the page is written.
"""

import sys
from pathlib import Path

from cost_models.profiles import profiles_root
from planner.validation import validate_file
from planner.validation.calibrate import calibrate, with_unseen, write_constants, write_spreads
from planner.validation.documents import accuracy_page
from planner.validation.figures import write_figures
from planner.validation.routing import fit_routing
from planner.validation.test_page import test_section
from planner.validation.unseen_page import unseen_section


def main(arguments: list[str]) -> int:
    """Write the page, and the constants if asked; the page describes the constants that were written."""
    runs = profiles_root() / "published" / "runs.csv"
    report = validate_file(runs)
    unseen = profiles_root() / "published" / "unseen.csv"
    found = calibrate(report.outcomes)
    if "--write" in arguments:
        write_constants(found)
    found = with_unseen(found, validate_file(unseen).outcomes)
    if "--write" in arguments:
        write_spreads(found)
        report = validate_file(runs)
    tests = profiles_root() / "published" / "megatron_ci.json"
    section = (
        f"{unseen_section(validate_file(unseen))}\n{test_section(validate_file(tests), fit_routing(tests))}"
    )
    docs = Path(profiles_root()).parent / "docs"
    figures = [path.stem for path in write_figures(report, docs / "figures")]
    (docs / "accuracy.md").write_text(accuracy_page(report, found, section, figures), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
