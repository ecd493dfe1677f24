"""A measured profile as JSON: what it covers, how tight, and a model's layers beside their prediction."""

from collections.abc import Sequence
from statistics import median

from cost_models.profiles import MeasuredProfile, Point
from planner.executor.profiled.order import ProfileOrder
from planner.executor.profiled.table import LayerRow, layer_table, median_error
from planner.situation import resolve


def profile_json(profile: MeasuredProfile, order: ProfileOrder) -> dict[str, object]:
    """`planner profile --json`."""
    manifest = profile.manifest
    layers: list[LayerRow] = []
    for model in order.models:
        request = model.request
        layers += layer_table(profile, resolve(request.model, request.cluster, request.job))
    return {
        "device": manifest.device,
        "profile": profile.title,
        "folder": str(profile.folder),
        "complete": manifest.complete,
        "cases": manifest.cases,
        "measured": len(profile.points),
        "spent_s": manifest.spent_s,
        "load_before": manifest.machine.load_before,
        "clock": manifest.clock,
        "versions": dict(manifest.versions),
        "coverage": coverage(profile),
        "facts": {p.name: p.features["value"] for p in profile.of("fact") if p.name != "not_run"},
        "not_run": [point.label for point in profile.of("fact") if point.name == "not_run"],
        "layers": [row.to_json() for row in layers],
        "layer_median_error": median_error(layers),
    }


def coverage(profile: MeasuredProfile) -> list[dict[str, object]]:
    """Families with their points, processes and the median half width of their intervals."""
    groups: dict[tuple[str, str], list[Point]] = {}
    for point in profile.points:
        if point.kind != "fact":
            groups.setdefault((point.kind, point.name), []).append(point)
    return [_family(kind, name, points) for (kind, name), points in sorted(groups.items())]


def _family(kind: str, name: str, points: Sequence[Point]) -> dict[str, object]:
    return {
        "kind": kind,
        "name": name,
        "points": len(points),
        "precisions": sorted({point.precision for point in points} - {""}),
        "processes": sorted({point.processes for point in points}),
        "half_width": median(point.half_width for point in points),
    }
