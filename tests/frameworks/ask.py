"""Ask a framework: cases go to a probe in an environment that has it, verdicts come back."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"


def ask(framework: str, cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One verdict a case, in order."""
    probe = Path(__file__).parent / "probes" / f"ask_{framework}.py"
    answer = subprocess.run(
        [str(PYTHON), str(probe)],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    verdicts = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    assert len(verdicts) == len(cases), answer.stderr[-3000:]
    return verdicts
