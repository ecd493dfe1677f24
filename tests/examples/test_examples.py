"""The five examples run, and say what they are for."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAID = {
    "one_node_7b": ("best: DP8 ZeRO-", "16 GPUs:"),
    "seventy_b_on_64": ("optimal, gap 0.0", "losses: none"),
    "moe_on_512": ("ep 8:", "capacity 1.25"),
    "mixed_a100_h100": ("H100 alone", "stages on: old, new"),
    "resnet_with_ddp": ("efficiency", "128"),
}


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name, tmp_path):
    answer = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    for words in SAID[name]:
        assert words in answer.stdout
