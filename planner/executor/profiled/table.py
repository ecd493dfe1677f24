"""Layers of a model as a profile measured them, beside what the cost model predicts from the same profile's kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from cost_models.mesh import batch_of, mesh_key
from cost_models.operators.base import Phase, Shard
from cost_models.pricing import Pricer
from cost_models.profiles import MeasuredProfile, Point
from cost_models.rows import stack_shard
from cost_models.specs.model import Layer, Role
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, complete_legal
from planner.situation import Situation, changed


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One pass of one kind of layer. `flops_per_s` counts the cost model's FLOP over the measured time; bytes are of
    the forward pass: what it moves, and what it keeps for the backward pass."""

    kind: str
    phase: str
    mbs: int
    processes: int
    measured_s: float
    half_width: float
    predicted_s: float
    flops_per_s: float
    moved_bytes: float
    saved_bytes: float
    predicted_saved_bytes: float
    peak_bytes: float

    @property
    def ratio(self) -> float:
        """Predicted / measured."""
        return self.predicted_s / self.measured_s

    def to_json(self) -> dict[str, object]:
        """All fields by name, and the ratio."""
        return asdict(self) | {"ratio": self.ratio}


def layer_table(profile: MeasuredProfile, situation: Situation, processes: int = 1) -> tuple[LayerRow, ...]:
    """Rows of all layers of the model that the profile holds, in the order of the model.

    The situation's cluster has as many devices as `processes` measured side by side.
    """
    found = []
    name = f"{situation.model.name} s{situation.job.seq_len or situation.job.image_size} "
    points = [p for p in profile.of("layer") if p.processes == processes and p.label.startswith(name)]
    sizes = sorted({round(point.features["sequences"]) for point in points})
    for mbs in sizes:
        predicted = _predicted(situation, mbs)
        for layer in _kinds(situation):
            for phase in ("forward", "backward"):
                own = [p for p in points if (p.name, p.phase) == (layer.kind, phase)]
                own = [p for p in own if round(p.features["sequences"]) == mbs]
                if own and (layer.kind, phase) in predicted:
                    found.append(_row(own[0], layer, situation, predicted[layer.kind, phase]))
    return tuple(found)


def median_error(rows: Sequence[LayerRow]) -> float | None:
    """Median of |predicted / measured - 1|; None without rows."""
    return median(abs(row.ratio - 1.0) for row in rows) if rows else None


def _kinds(situation: Situation) -> list[Layer]:
    kept: dict[str, Layer] = {}
    for layer in situation.model.layers:
        if layer.role is not Role.MTP:
            kept.setdefault(layer.kind, layer)
    return list(kept.values())


def _predicted(situation: Situation, mbs: int) -> Mapping[tuple[str, str], tuple[float, float]]:
    """(seconds, saved bytes) of a pass of every kind, of one micro-batch on one rank, no collective in it."""
    devices = situation.cluster.num_devices
    situation = changed(situation, {"global_batch": mbs * devices})
    context = Context.of(situation)
    strategy = complete_legal(context, parse_strategy(f"dp={devices},mbs={mbs},zero=0"))
    pricer: Pricer = context.pricer
    work = pricer.work(batch_of([strategy], mesh_key(strategy)))
    rows = _row_of_kind(situation)
    found = {}
    for kind, row in rows.items():
        saved = float(work.saved_bytes[row, 0])
        found[kind, "forward"] = float(work.forward_parts_s[0, row, 0]), saved
        found[kind, "backward"] = float(work.backward_parts_s[0, row, 0]), saved
    return found


def _row_of_kind(situation: Situation) -> Mapping[str, int]:
    """Row of the layer table of every kind: embedding first, blocks by kind, head last."""
    from cost_models.rows import model_rows

    rows = model_rows(situation.model, situation.job)
    found: dict[str, int] = {}
    for index, row in enumerate(rows.rows):
        if len(row) == 1:
            found.setdefault(row[0].kind.name, index)
    return found


def _row(point: Point, layer: Layer, situation: Situation, predicted: tuple[float, float]) -> LayerRow:
    flops, moved = _counted(layer, situation, round(point.features["sequences"]), point.phase)
    return LayerRow(
        layer.kind,
        point.phase,
        round(point.features["sequences"]),
        point.processes,
        point.seconds,
        point.half_width,
        predicted[0],
        flops / point.seconds,
        moved,
        point.features.get("saved_bytes", 0.0),
        predicted[1],
        point.features.get("peak_bytes", 0.0),
    )


def _counted(layer: Layer, situation: Situation, mbs: int, phase: str) -> tuple[float, float]:
    """FLOP and bytes of one pass of a layer on one rank."""
    at = stack_shard(
        situation.model, situation.job, layer.stack, Shard(float(mbs), 1.0, 1.0, situation.job.image_size)
    )
    style = situation.engine.style(situation.job, "ring")
    kernels = [
        kernel
        for operator in situation.model.kinds[layer.kind].operators
        for kernel in operator.kernels(at, style)
        if (kernel.phase is Phase.FORWARD) == (phase == "forward")
    ]
    return float(sum(k.flops for k in kernels)), float(sum(k.bytes for k in kernels))
