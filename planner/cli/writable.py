"""Files that commands write, refused before the work where they cannot be written."""

import os
from pathlib import Path

from cost_models.errors import BadInput


def output_path(name: str | None, option: str = "-o", example: str = "plan.json") -> Path | None:
    """The file to write, refused before the search where it cannot be written."""
    if name is None:
        return None
    path = Path(name)
    if not path.name:
        raise BadInput(f"{option} {name[:200]!r} names no file; give for example {option} {example}")
    if not path.parent.is_dir():
        raise BadInput(
            f"{option} {name[:200]!r}: there is no folder {str(path.parent)[:200]!r}; make it first"
        )
    try:
        place = path if path.exists() else path.parent
    except OSError as error:
        raise BadInput(
            f"{option} {name[:200]!r} cannot be written ({error.strerror}); choose another"
        ) from None
    if not os.access(place, os.W_OK):
        raise BadInput(f"{option} {name[:200]!r}: {str(place)[:200]!r} may not be written; choose another")
    return path
