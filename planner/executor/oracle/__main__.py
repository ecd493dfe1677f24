"""`python -m planner.executor.oracle docs/torch_oracle.md`: compare every case, write the document."""

import sys
import time
from pathlib import Path

from planner.executor.oracle.cases import oracle_cases
from planner.executor.oracle.compare import compare, document


def main() -> None:
    """Compare, one case after the other."""
    started, rows = time.monotonic(), []
    for case in oracle_cases():
        rows.append(compare(case))
        seconds = time.monotonic() - started
        sys.stderr.write(f"{seconds:5.0f} s  {case.name}: error {100 * rows[-1].error:+.2f} %\n")
    Path(sys.argv[1]).write_text(document(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
