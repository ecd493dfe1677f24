"""Whether the tensors of a folder are a model's: what is missing, unknown, of another shape or type."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cost_models.errors import BadInput
from cost_models.fine_tuning import fine_tuned
from cost_models.specs.model import ModelSpec
from planner.executor.data_parallel.held import persistent_buffers
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions
from planner.executor.weights.cuts import Source
from planner.executor.weights.names import Naming, naming_of
from planner.executor.weights.stored import ITEM_BYTES, Directory
from planner.situation import Situation

NAMED = 3
"""Tensors that a message names; it counts the others."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a folder's tensors are used."""

    naming: Naming
    ignored: tuple[str, ...] = ()
    """Tensors that no model needs (masks, tables that are made anew, copies of tied tables)."""
    skipped: tuple[str, ...] = ()
    """Tensors of multi-token-prediction layers that are not trained."""


def sources_of(naming: Naming, predictions: bool) -> dict[str, Source]:
    """The source of every parameter and persistent buffer of the whole model, in its order."""
    options = BuildOptions(device="meta", train_mtp=predictions)
    chunk = build_chunk(naming.model, whole(naming.model), options)
    shapes = {name: tuple(parameter.shape) for name, parameter in chunk.named_parameters()}
    shapes |= {name: tuple(buffer.shape) for name, buffer in persistent_buffers([chunk]).items()}
    return {name: naming.source(name, shape) for name, shape in shapes.items()}


def match(directory: Directory, model: ModelSpec, *, predictions: bool) -> Match:
    """Hold the folder's tensors against the model's; raises BadInput naming what does not fit, with counts."""
    naming = naming_of(model, directory.tensors)
    shapes = {
        key: source.stored_shape for source in sources_of(naming, predictions).values() for key in source.keys
    }
    there = directory.tensors
    _refuse(
        "are missing", [key for key in shapes if key not in there], len(shapes), _hint(naming, shapes, there)
    )
    other = [
        f"{key} is {there[key].shape} and the model's {shape}"
        for key, shape in shapes.items()
        if there[key].shape != shape
    ]
    _refuse("have another shape", other, len(shapes), "; give the plan this folder's own config.json")
    unread = [f"{key} ({there[key].dtype})" for key in shapes if there[key].dtype not in ITEM_BYTES]
    types = ", ".join(ITEM_BYTES)
    _refuse("have an element type that is not read", unread, len(shapes), f"; save them as one of {types}")
    rest = [key for key in there if key not in shapes]
    skipped = tuple(
        key for key in rest if naming.is_prediction(key) and _is_left_out(naming, key, predictions)
    )
    ignored = tuple(key for key in rest if key not in skipped and naming.is_ignored(key))
    known = {*skipped, *ignored}
    unknown = [key for key in rest if key not in known]
    _refuse("are unknown", unknown, len(there), "; they belong to no parameter of the model")
    return Match(naming, ignored, skipped)


def check_model(directory: Directory, situation: Situation) -> None:
    """Raise BadInput where the folder's config describes another model than the plan's, with what the job freezes or
    adds marked in both."""
    own, model = fine_tuned(directory.model, situation.job.trainable), situation.model
    for name in ("family", "hidden_size", "vocab_size", "num_blocks", "tied_embeddings"):
        there, planned = getattr(own, name), getattr(model, name)
        if there != planned:
            _other(directory, f"{name} {there} and the plan's model {planned}")
    settings = {*own.semantics, *model.semantics}
    changed = sorted(key for key in settings if own.semantics.get(key) != model.semantics.get(key))
    if changed:
        key = changed[0]
        _other(directory, f"{key} {own.semantics.get(key)} and the plan's model {model.semantics.get(key)}")
    if (own.layers, own.kinds) != (model.layers, model.kinds):
        kinds = [
            name for name in {**own.kinds, **model.kinds} if own.kinds.get(name) != model.kinds.get(name)
        ]
        _other(directory, f"other layers ({', '.join(kinds) or 'in another order'}) than the plan's model")


def _other(directory: Directory, what: str) -> None:
    raise BadInput(
        f"config.json of {str(directory.path)[:200]!r} has {what:.300}; plan with --model {str(directory.path)[:200]}"
    )


def _is_left_out(naming: Naming, key: str, predictions: bool) -> bool:
    """Whether a prediction layer's tensor is not loaded: all of them, or where they are trained copies alone."""
    return not predictions or naming.is_prediction_copy(key)


def _hint(naming: Naming, wanted: Iterable[str], there: Collection[str]) -> str:
    if any(naming.is_prediction(key) and key not in there for key in wanted):
        return "; train without the prediction layers (--set job.train_mtp=false)"
    return "; take a folder that save_pretrained wrote of this model"


def _refuse(what: str, found: list[str], of: int, hint: str) -> None:
    if not found:
        return
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    raise BadInput(f"{len(found):,} of {of:,} tensors {what}: {', '.join(found[:NAMED])}{more}{hint}"[:1500])
