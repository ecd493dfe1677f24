"""What stands against a run's checkpoint options, before anything is launched. Needs no torch."""

from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.executor.checkpoint.facts import check_facts
from planner.executor.checkpoint.store import Entry, examine, list_checkpoints
from planner.executor.request import RunOrder

AUTO: Final = "auto"


def check_checkpoints(order: RunOrder) -> None:
    """Raise BadInput for options that contradict each other or what lies in the folders; makes the run's folder."""
    options = order.options
    if options.resume == AUTO and not options.checkpoint:
        raise BadInput(
            "--resume auto goes on from the run's own checkpoints; give their folder with --checkpoint DIR"
        )
    if options.checkpoint:
        _make(Path(options.checkpoint))
    check_lineage(order)
    if options.resume and options.resume != AUTO:
        _check_source(order, Path(options.resume))
    own = _newest_good(Path(options.checkpoint)) if options.resume == AUTO else None
    if own is not None and own.manifest is not None:
        check_facts(own.manifest.facts, order)


def check_lineage(order: RunOrder) -> None:
    """Raise BadInput where the folder holds checkpoints that this run does not go on from.

    A restart goes on from the newest checkpoint of the folder, so all of them must be of this run.
    """
    options = order.options
    there = list_checkpoints(Path(options.checkpoint)) if options.checkpoint else []
    if not there or options.resume == AUTO:
        return
    newest, folder = there[-1], options.checkpoint[:200]
    if not options.resume:
        raise BadInput(
            f"--checkpoint {folder!r} holds checkpoints up to step {newest.step:,}; go on with --resume auto, or give "
            "an empty folder"
        )
    source = _newest_good(Path(options.resume))
    if source is not None and source.step < newest.step:
        raise BadInput(
            f"--checkpoint {folder!r} holds step {newest.step:,}, after step {source.step:,} of --resume; give "
            "another folder, or move the later checkpoints away"
        )


def candidates(place: Path) -> list[Entry]:
    """Checkpoints of a folder of them, or the one that the folder is."""
    return list_checkpoints(place) or ([examine(place)] if place.is_dir() else [])


def _check_source(order: RunOrder, place: Path) -> None:
    entry = _newest_good(place)
    if entry is None or entry.manifest is None:
        found = candidates(place)
        why = f": {found[-1].path.name}: {found[-1].problem}" if found else ""
        raise BadInput(f"--resume {str(place)[:200]!r} holds no good checkpoint{why}; give another, or auto")
    check_facts(entry.manifest.facts, order)
    if entry.step >= order.options.steps:
        raise BadInput(
            f"--resume {str(place)[:200]!r} is at step {entry.step:,}, and --steps {order.options.steps:,} ends there; "
            "give more --steps"
        )


def _newest_good(place: Path) -> Entry | None:
    good = [entry for entry in candidates(place) if entry.is_valid]
    return good[-1] if good else None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(
            f"checkpoint folder {str(folder)[:200]!r} cannot be written ({error.strerror}); give another --checkpoint"
        ) from None
