"""Whether the torch that is installed can run plans."""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from cost_models.errors import BadInput

LEAST_TORCH: Final = (2, 10)
"""Oldest torch whose FSDP2, device meshes and grouped products the executor calls (the `torch` extra's bound)."""


def check_torch() -> None:
    """Raise BadInput where torch is missing, too old to run a plan here, or broken."""
    least = ".".join(map(str, LEAST_TORCH))
    wanted = f"install parallelism-planner[torch] (torch {least} or newer)"
    try:
        found = version("torch")
    except PackageNotFoundError:
        raise BadInput(f"running a plan here needs torch, which is not installed; {wanted}") from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < LEAST_TORCH:
        raise BadInput(
            f"torch {found[:40]} is installed, and running a plan needs {least} or newer; {wanted}"
        )
    try:
        import_module("torch")
    except (ImportError, OSError) as error:  # a library that it is linked with may be missing
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"torch {found[:40]} is installed and cannot be imported ({what}); {wanted} anew"
        ) from None
