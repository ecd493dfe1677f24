"""Which planner this is, for `--version` and for the `made_with` of every answer."""

from typing import Final

DISTRIBUTION: Final = "parallelism-planner"


def planner_version() -> str:
    """Version of the installed distribution; `0+unknown` where only the source tree is on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0+unknown"
