"""Reads profiles/: devices, cluster presets and model configs, and the files of a user's own cluster.

Only `load_cluster` opens a path that a user names; everything else looks names up in the catalog, so that a
service can use it on names from outside.
"""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import Field, ValidationError

from cost_models.errors import BadInput, InvalidCluster, InvalidModel
from cost_models.profiles.faults import fault_sentence
from cost_models.specs.base import Frozen
from cost_models.specs.cluster import ClusterSpec, check_num_devices
from cost_models.specs.device import DeviceSpec, Figure
from cost_models.strict_json import parse_json
from cost_models.suggest import did_you_mean

ROOT_VARIABLE: Final = "PARALLELISM_PLANNER_PROFILES"
HOST_DEVICE: Final = "cpu"
_DATA_SUFFIXES: Final = frozenset({".toml", ".json", ".tsv", ".csv"})
_EXAMPLES: Final = {
    "cluster": 'write name = "mine", [[groups]] with device, nodes and devices_per_node, and [[tiers]] with name, '
    "bytes_per_s and latency_s; docs/clusters.md shows a whole file"
}
_MAX_FILE_BYTES: Final = 16 * 1024**2

_Spec = TypeVar("_Spec", bound=Frozen)


class _PresetGroup(Frozen):
    """The node of a preset; without `devices_per_node` all devices share one node."""

    device: str
    devices_per_node: int | None = Field(default=None, ge=1)
    host_bytes: float = Field(default=0.0, ge=0)
    devices_per_host_link: int = Field(default=1, ge=1)
    price_per_device_hour_usd: float | None = Field(default=None, ge=0)
    power_w: float | None = Field(default=None, gt=0)
    source: str = ""


class _Preset(Frozen):
    """A file of profiles/clusters/: a cluster whose number of devices is still open."""

    name: str
    title: str
    default_devices: int | None = Field(default=None, ge=1)
    group: _PresetGroup
    tiers: tuple[dict[str, Any], ...] = Field(min_length=1)


def profiles_root() -> Path:
    """The folder of the data: an environment variable's, or the one beside the packages."""
    given = os.environ.get(ROOT_VARIABLE)
    return Path(given) if given else Path(__file__).resolve().parents[2] / "profiles"


def list_devices() -> tuple[str, ...]:
    """Names of all devices, sorted."""
    return _names("devices", ".toml")


def list_clusters() -> tuple[str, ...]:
    """Names of all cluster presets, sorted."""
    return _names("clusters", ".toml")


def list_models() -> tuple[str, ...]:
    """Names of all model configs of the catalog, sorted."""
    return _names("models", ".json")


def load_device(name: str) -> DeviceSpec:
    """The description of a device of the catalog; `cpu` describes one core of the host."""
    path = _catalog_path("devices", name, InvalidCluster)
    return _checked(DeviceSpec, _read_toml(path), f"device {name}")


def host_device(num_processes: int) -> DeviceSpec:
    """The host's processor as a device: each of `num_processes` devices is the host over that number."""
    check_num_devices(num_processes)
    core = load_device(HOST_DEVICE)
    share = _host_cores() / num_processes
    capacity = Figure(
        value=_host_memory_bytes() / num_processes,
        unit="bytes",
        kind="measured",
        source=f"memory of this host, as its kernel reports it, over {num_processes} processes",
    )
    rates = ("memory_bytes_per_s", "vector_flops", "compute_units", "power_w", "host_link_bytes_per_s")
    scaled = {field: _scaled(getattr(core, field), share) for field in rates}
    peaks = {precision: _scaled(figure, share) for precision, figure in core.peak_flops.items()}
    context = _scaled(core.context_bytes, min(1.0, capacity.value / (2 * core.context_bytes.value)))
    update = {"capacity_bytes": capacity, "peak_flops": peaks, "context_bytes": context, **scaled}
    return core.model_copy(update={"title": f"Host CPU over {num_processes}", **update})


def load_preset(name: str, devices: int | None = None) -> ClusterSpec:
    """A catalog cluster with a number of devices (default: one node, or one rack); opens no other file."""
    path = _catalog_path("clusters", name, InvalidCluster)
    preset = _checked(_Preset, _read_toml(path), f"cluster preset {name}")
    group = preset.group
    num_devices = devices if devices is not None else preset.default_devices or group.devices_per_node or 1
    check_num_devices(num_devices)
    per_node = group.devices_per_node or num_devices
    nodes = -(-num_devices // per_node)
    sized = {**group.model_dump(), "devices_per_node": per_node, "nodes": nodes, "devices": num_devices}
    return cluster_from_spec({"name": name, "groups": [sized], "tiers": preset.tiers})


def cluster_from_spec(spec: Mapping[str, Any]) -> ClusterSpec:
    """A cluster from its description as plain data; devices are catalog names or whole descriptions."""
    cluster = _checked(ClusterSpec, spec, "cluster")
    groups = []
    for group in cluster.groups:
        device = group.device
        if isinstance(device, str):
            device = host_device(group.devices_per_node) if device == HOST_DEVICE else _as_measured(device)
        partial = None if group.num_devices == group.nodes * group.devices_per_node else group.devices
        groups.append(group.model_copy(update={"device": device, "devices": partial}))
    return cluster.model_copy(update={"groups": tuple(groups)})


def _as_measured(name: str) -> DeviceSpec:
    """A device of the catalog with what its own profile says of its memory, where it was measured."""
    from cost_models.profiles.found import measured_profile

    device, profile = load_device(name), measured_profile(name)
    if profile is None:
        return device
    source = f"measured profile {profile.title}"
    update = {
        field: Figure(value=value, unit="bytes", kind="measured", source=source)
        for field in ("capacity_bytes", "context_bytes")
        if (value := profile.fact(field))
    }
    return device.model_copy(update=update)


def load_cluster(text: str) -> ClusterSpec:
    """A cluster from what stands on the command line: `preset`, `preset:N`, or a .toml or .json file."""
    if Path(text).suffix.lower() in {".toml", ".json", ".yaml", ".yml"} or os.sep in text:
        return cluster_from_spec(_read_user_file(Path(text)))
    name, colon, count = text.partition(":")
    if not colon:
        return load_preset(name)
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", count):
        detail = f"{count[:40]!r} is no number of devices; write a whole number, as in {name[:80]}:64"
        raise InvalidCluster(detail, pointer="/cluster/devices")
    return load_preset(name, int(count))


def model_config(name: str) -> dict[str, Any]:
    """The published config.json of a model of the catalog."""
    path = _catalog_path("models", name, InvalidModel)
    config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise InvalidModel(f"{path.name} holds a {type(config).__name__}; write a JSON object")
    return config


def profiles_sha256() -> str:
    """Hash over the names and contents of all data files, for the plan file."""
    return _sha256_of(profiles_root())


@lru_cache(maxsize=4)
def _sha256_of(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.suffix in _DATA_SUFFIXES and p.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _names(folder: str, suffix: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (profiles_root() / folder).glob(f"*{suffix}")))


def _catalog_path(folder: str, name: str, error: type[BadInput]) -> Path:
    """Path of a catalog entry; the name must be one of the listed, so it can reach no other file."""
    suffix = ".json" if folder == "models" else ".toml"
    known = _names(folder, suffix)
    if name in known:
        return profiles_root() / folder / f"{name}{suffix}"
    hint = f"{did_you_mean(name[:80], known)}see `planner catalog {folder}`"
    detail = f"{folder[:-1]} {name[:80]!r} is not one of the {len(known)} known; {hint}"
    raise error(detail, pointer=f"/{'model' if folder == 'models' else 'cluster'}", allowed=known)


def _checked(kind: type[_Spec], raw: Mapping[str, Any], what: str) -> _Spec:
    """The value object of plain data, or one sentence that names the keys that are wrong."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        detail, keys = fault_sentence(faults, _EXAMPLES.get(what, "give it"))
        raise InvalidCluster(f"{what}: {detail}", pointer=f"/cluster/{'/'.join(keys)}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _read_user_file(path: Path) -> dict[str, Any]:
    """Plain data of a user's .toml or .json file."""
    if path.suffix.lower() not in {".toml", ".json"}:
        raise InvalidCluster(f"cluster file {path} is neither .toml nor .json; docs/clusters.md shows one")
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidCluster(f"cluster file {path} exceeds {_MAX_FILE_BYTES:,} bytes; shorten it")
        text = path.read_text(encoding="utf-8-sig")
        data = parse_json(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidCluster(f"cluster file {path} cannot be read ({reason}); check the path") from error
    except (ValueError, RecursionError) as error:
        raise InvalidCluster(f"cluster file {path} does not parse: {error}; correct it") from error
    if not isinstance(data, dict):
        raise InvalidCluster(f"cluster file {path} holds a {type(data).__name__}; write an object")
    return data


def _scaled(figure: Figure, factor: float) -> Figure:
    source = f"{figure.source}; times {factor:g}"
    return figure.model_copy(update={"value": figure.value * factor, "kind": "derived", "source": source})


def _host_cores() -> int:
    """Processors this process may use; a container or a launcher may have fewer than the host."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _host_memory_bytes() -> int:
    """Memory of the host, or of the container where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdigit() else physical
