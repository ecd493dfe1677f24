"""What is known by name: devices, cluster presets, models and engines, with where each figure comes from."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cost_models.errors import BadInput
from cost_models.profiles import (
    list_clusters,
    list_devices,
    list_models,
    load_device,
    load_preset,
    measured_profile,
    model_config,
    profiles_root,
)
from cost_models.suggest import did_you_mean

if TYPE_CHECKING:
    from cost_models.engines.base import Engine
    from cost_models.specs.cluster import ClusterSpec

Entry = dict[str, object]

KINDS: Final = ("devices", "clusters", "models", "engines")


def list_entries(kind: str) -> list[Entry]:
    """Short descriptions of everything of one kind; raises BadInput for an unknown kind."""
    names, short, _ = _source(kind)
    return [short(name) for name in names()]


def describe_entry(kind: str, name: str) -> Entry:
    """Everything known about one entry, each figure with its source; raises BadInput for an unknown name."""
    _, _, full = _source(kind)
    return full(name)


def _source(
    kind: str,
) -> tuple[Callable[[], tuple[str, ...]], Callable[[str], Entry], Callable[[str], Entry]]:
    sources: Mapping[
        str, tuple[Callable[[], tuple[str, ...]], Callable[[str], Entry], Callable[[str], Entry]]
    ] = {
        "devices": (list_devices, _device_line, _device),
        "clusters": (list_clusters, _cluster_line, _cluster),
        "models": (list_models, _model_line, _model),
        "engines": (_engine_names, _engine_line, _engine),
    }
    if kind not in sources:
        hint = did_you_mean(kind, KINDS)
        raise BadInput(f"no catalog of {kind[:40]!r}; {hint}use {', '.join(KINDS)}", allowed=KINDS)
    return sources[kind]


def _device_line(name: str) -> Entry:
    device = load_device(name)
    peak = device.peak_flops.get("bf16") or device.peak_flops.get("fp16")
    return {
        "name": name,
        "title": device.title,
        "capacity_bytes": device.capacity_bytes.value,
        "memory_bytes_per_s": device.memory_bytes_per_s.value,
        "half_precision_flops": peak.value if peak else None,
        "precisions": list(device.peak_flops),
        "measured": _measured(name),
    }


def _device(name: str) -> Entry:
    return load_device(name).model_dump(mode="json") | {"measured": _coverage(name)}


def _measured(name: str) -> str:
    """The newest measured profile of a device, and what it covers, in short; empty where there is none."""
    try:
        profile = measured_profile(name)
    except BadInput as error:
        return str(error)
    if profile is None:
        return ""
    curves = {point.name for point in profile.of("kernel")}
    ended = "" if profile.manifest.complete else ", cut short"
    return f"{profile.folder.name}: {len(curves)} kernels, {len(profile.of('collective'))} messages{ended}"


def _coverage(name: str) -> Entry | None:
    """Profile and curves by name with their number of points; None where the device was not measured."""
    profile = measured_profile(name)
    if profile is None:
        return None
    counts = Counter(point.name for point in profile.points if point.kind in ("kernel", "collective"))
    return {
        "profile": profile.title,
        "complete": profile.manifest.complete,
        "points": dict(sorted(counts.items())),
    }


def _cluster_line(name: str) -> Entry:
    cluster = load_preset(name)
    return {
        "name": name,
        "device": cluster.device.name,
        "devices_per_node": cluster.groups[0].devices_per_node,
        "tiers": [
            {"name": tier.name, "bytes_per_s": tier.bytes_per_s.value, "latency_s": tier.latency_s.value}
            for tier in cluster.tiers
        ],
    }


def _cluster(name: str) -> Entry:
    return describe_cluster(load_preset(name))


def describe_cluster(cluster: "ClusterSpec") -> Entry:
    """A cluster as its file says it, and where there are several device groups their names and what joins them."""
    entry: Entry = cluster.model_dump(mode="json")
    if not cluster.is_mixed:
        return entry
    from cost_models.specs.pools import link_between

    names = cluster.group_names
    links = [(a, b, link_between(cluster, (a,), (b,)).tiers[0]) for a, b in combinations(names, 2)]
    entry["group_names"] = list(names)
    entry["devices"] = cluster.num_devices
    entry["between"] = [
        {"groups": [a, b], "tier": tier.name, "bytes_per_s": tier.bytes_per_s_each(tier.shared_by)}
        | {"latency_s": tier.latency_s.value}
        for a, b, tier in links
    ]
    return entry


def _model_line(name: str) -> Entry:
    """Counts come from a table beside the configs: reading every config takes too long for a list."""
    config = model_config(name)
    architectures = config.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    parameters, active = model_counts(profiles_root()).get(name, (None, None))
    return {
        "name": name,
        "family": config.get("model_type"),
        "parameters": parameters,
        "active_parameters": active,
        "architecture": architecture,
    }


@cache
def model_counts(root: Path) -> Mapping[str, tuple[int, int]]:
    """(Parameters, active parameters) of each model of the catalog, as `make coverage` wrote them."""
    rows = _rows(root / "models" / "counts.tsv")
    return {row["name"]: (int(row["parameters"]), int(row["active_parameters"])) for row in rows}


def _model_source(name: str) -> Entry:
    """Where a config was found, and the size that its authors state."""
    found: Entry = {}
    for row in _rows(profiles_root() / "models" / "sources.tsv"):
        if row["name"] == name:
            found = {key: value for key, value in row.items() if key != "name"}
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    return [dict(zip(head.split("\t"), line.split("\t"), strict=True)) for line in lines]


def _model(name: str) -> Entry:
    from planner.inspect_model import inspect_model
    from planner.request import CatalogModel
    from planner.situation import resolve_model

    facts = inspect_model(resolve_model(CatalogModel(name=name)), None)
    return _model_line(name) | facts | _model_source(name) | {"config": model_config(name)}


def _engines() -> "Mapping[str, type[Engine]]":
    """Imported where they are asked for: engines bring the whole cost model, which a list of models can
    spare."""
    from cost_models.engines import ENGINES

    return ENGINES


def _engine_names() -> tuple[str, ...]:
    return tuple(sorted(_engines()))


def _engine_line(name: str) -> Entry:
    engine = _engines()[name]
    return {"name": name, "versions": list(engine.versions), "default_zero": engine.default_zero}


def _engine(name: str) -> Entry:
    engines = _engines()
    if name not in engines:
        known = tuple(sorted(engines))
        hint = did_you_mean(name, known)
        raise BadInput(f"engine {name[:40]!r} is not known; {hint}use {', '.join(known)}", allowed=known)
    engine = engines[name]
    schema = engine.options_type.model_json_schema()["properties"]
    options = {f"engine.{key}": _option(entry) for key, entry in schema.items()}
    return _engine_line(name) | {"options": options}


def _option(schema: Mapping[str, object]) -> Entry:
    """What an option takes: type, default and limits, from its JSON schema."""
    return {key: value for key, value in schema.items() if key != "title"}
