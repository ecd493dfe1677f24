"""The cluster file that the README shows is the one that its commands are tried with."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_shows_the_cluster_file_of_its_commands() -> None:
    (shown,) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert shown == (ROOT / "tests" / "docs" / "workbench" / "cluster.toml").read_text(encoding="utf-8")
