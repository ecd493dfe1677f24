"""Goes on from a checkpoint: finds the last good one, and reads this rank's part of it whatever layout wrote it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException

from cost_models.errors import BadInput
from planner.executor.checkpoint.checks import AUTO, candidates, check_lineage
from planner.executor.checkpoint.facts import changed_facts, check_facts
from planner.executor.checkpoint.pieces import MODEL, Piece, RankState
from planner.executor.checkpoint.planners import PieceReader
from planner.executor.checkpoint.random_states import seed_generators, set_random_state
from planner.executor.checkpoint.store import Entry, Manifest, damage
from planner.executor.optimizers.schedule import go_on_after
from planner.executor.request import RunOrder
from planner.executor.step import Trainer


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a run goes on; step 0 and no path for one that begins."""

    step: int = 0
    path: str = ""
    skipped: tuple[str, ...] = ()
    """Newer checkpoints that are not valid, and why."""
    changed: tuple[str, ...] = ()
    """What decides the data and was different when the checkpoint was written."""

    def to_event(self) -> dict[str, object]:
        """A line of the run's events."""
        return {
            "event": "resumed",
            "step": self.step,
            "path": self.path,
            "skipped": list(self.skipped),
            "changed": list(self.changed),
        }


def resume(order: RunOrder, trainer: Trainer, attempt: int) -> Resumed:
    """Load what the options and the attempt ask for into a new trainer; collective.

    A restarted run goes on from its own last good checkpoint, whatever it began from. Raises BadInput where the
    options name a checkpoint and none is good.
    """
    seed_generators(order.options.seed, 0, trainer.meshes)
    if not attempt:
        check_lineage(order)
    skipped: list[str] = []
    for place in _places(order, attempt):
        entry = last_good(place, skipped)
        if entry is not None:
            return _load(entry, order, trainer, skipped)
    wanted = order.options.resume
    if wanted and wanted != AUTO:
        why = f" ({'; '.join(skipped)})"[:500] if skipped else ""
        raise BadInput(f"--resume {wanted[:200]!r} holds no good checkpoint{why}; give another, or auto")
    return Resumed(skipped=tuple(skipped))


def last_good(place: Path, skipped: list[str]) -> Entry | None:
    """The newest checkpoint all of whose bytes are as written; every rank reads a share of them. Collective."""
    found: list[list[Entry]] = [candidates(place) if dist.get_rank() == 0 else []]
    dist.broadcast_object_list(found)
    for entry in reversed(found[0]):
        problem = _problem(entry)
        if not problem:
            return entry
        skipped.append(f"{entry.path.name}: {problem}")
    return None


def _places(order: RunOrder, attempt: int) -> list[Path]:
    """Folders in which to look, first the one that counts most."""
    options = order.options
    own = [Path(options.checkpoint)] if options.checkpoint else []
    if options.resume and options.resume != AUTO:
        given = Path(options.resume)
        return [*own, given] if attempt else [given]
    return own if attempt or options.resume else []


def _problem(entry: Entry) -> str:
    """What is wrong with a checkpoint, the same answer on every rank; collective."""
    if not entry.is_valid or entry.manifest is None:
        return entry.problem
    names = sorted(entry.manifest.files)[dist.get_rank() :: dist.get_world_size()]
    problems: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(problems, damage(entry, names))
    return next((problem for problem in problems if problem), "")


def _load(entry: Entry, order: RunOrder, trainer: Trainer, skipped: Sequence[str]) -> Resumed:
    """Read the entry into the trainer: weights, states, rates, random numbers, position in the data; collective."""
    manifest = entry.manifest
    assert manifest is not None
    check_facts(manifest.facts, order)
    state = RankState(trainer.data_parallel)
    pieces = list(state.pieces())
    random = state.random_pieces() if _has_random_states(manifest, order) else []
    _check_size(pieces, manifest, trainer)
    try:
        state_dict_loader.load({}, checkpoint_id=entry.path, planner=PieceReader([*pieces, *random]))
    except CheckpointException as error:
        raise BadInput(f"checkpoint {entry.path.name}: {error.failures[min(error.failures)][0]}") from None
    state.settle(manifest.step)
    if not random:
        seed_generators(order.options.seed, manifest.step, trainer.meshes)
    for piece in random:
        set_random_state(piece.key, piece.tensor)
    go_on_after(trainer.data_parallel.schedule, manifest.step)
    trainer.sampler.next_sample = manifest.next_sample
    return Resumed(manifest.step, str(entry.path), tuple(skipped), changed_facts(manifest.facts, order))


def _has_random_states(manifest: Manifest, order: RunOrder) -> bool:
    """Whether the layout that wrote it had the same pipeline and data ranks."""
    written, own = manifest.facts.get("strategy"), order.strategy.to_json()
    axes = ("pp", "dp", "cp")
    return isinstance(written, dict) and all(written.get(axis) == own.get(axis) for axis in axes)


def _check_size(pieces: Sequence[Piece], manifest: Manifest, trainer: Trainer) -> None:
    """Raise BadInput where the model has other parameters in number; those of its own are checked one by one."""
    import torch

    own = sum(p.tensor.numel() for p in pieces if p.writes and p.key.startswith(f"{MODEL}/"))
    total = torch.tensor(own, device=trainer.device)
    dist.all_reduce(total)
    if int(total) != manifest.elements:
        raise BadInput(
            f"the checkpoint holds {manifest.elements:,} parameters, and the model has {int(total):,}; "
            "it is of another model"
        )
