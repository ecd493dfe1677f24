"""Reads a sweep file (YAML, TOML or JSON) into a SweepRequest; names and paths become tagged objects here."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.suggest import did_you_mean
from planner.cli.inputs import STANDARD_INPUT, is_file, is_path, read_json, read_text, shown
from planner.cli.question import load_cluster_input, load_model_input, validated
from planner.sweep.items import AXES, SweepRequest

KEYS: Final = (*AXES, "search")
SINGULAR: Final = {
    "model": "models",
    "cluster": "clusters",
    "seq_len": "seq_lens",
    "global_batch": "global_batches",
    "precision": "precisions",
    "engine": "engines",
    "optimizer": "optimizers",
}
SEARCH_DEFAULTS: Final[Mapping[str, object]] = {"top_k": 0, "explain": False}


def sweep_from_file(name: str) -> SweepRequest:
    """The sweep of a file, or of standard input; raises BadInput naming the key that is wrong."""
    values = _plain_values(name)
    folder = Path() if name == STANDARD_INPUT else Path(name).parent
    lists: dict[str, Any] = {}
    for key, value in values.items():
        known = SINGULAR.get(str(key), str(key))
        if known not in KEYS:
            hint = did_you_mean(str(key), KEYS)
            raise BadInput(
                f"sweep {shown(name)} has the key {str(key)[:60]!r}, which is not known; {hint}keys: {', '.join(KEYS)}"
            )
        if known in lists:
            raise BadInput(f"sweep {shown(name)} states {known} twice ({key}); state it once")
        lists[known] = value if known == "search" or isinstance(value, list) else [value]
    for key in ("models", "clusters", "global_batches"):
        if not lists.get(key):
            raise BadInput(f"sweep {shown(name)} has no {key}; give a list such as {key}: {_EXAMPLES[key]}")
    lists["models"] = [_model(value, folder) for value in lists["models"]]
    lists["clusters"] = [found for value in lists["clusters"] for found in _clusters(value, folder)]
    search = lists.get("search") or {}
    if not isinstance(search, Mapping):
        raise BadInput(
            f"sweep {shown(name)}: search holds a {type(search).__name__}; give keys such as max_seconds"
        )
    lists["search"] = {**SEARCH_DEFAULTS, **search}
    return validated(SweepRequest, lists, "sweep")


_EXAMPLES: Final = {
    "models": "[llama-3.1-8b]",
    "clusters": "['dgx-h100:64']",
    "global_batches": "[512]",
}


def _plain_values(name: str) -> dict[str, Any]:
    text = read_text(name, "sweep")
    if name.lower().endswith(".toml"):
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"sweep {shown(name)} is not TOML: {error}; correct it") from None
    if text.lstrip().startswith("{"):
        return read_json(text, name, "sweep")
    from planner.strict_yaml import parse_yaml

    return parse_yaml(text, shown(name))


def _model(value: Any, folder: Path) -> dict[str, Any]:
    """A named model: a catalog name, a path beside the file, a factory, or a tagged object."""
    if isinstance(value, Mapping):
        return (
            dict(value)
            if "model" in value
            else {"name": str(value.get("name", "model")), "model": dict(value)}
        )
    if not isinstance(value, str):
        raise BadInput(f"models holds a {type(value).__name__}; give names, paths or objects")
    path = folder / value
    if is_path(str(path)) and is_file(str(path)) and path.suffix.lower() == ".json":
        config = read_json(read_text(str(path), "model"), value, "model")
        return {"name": _stem(path), "model": {"kind": "huggingface", "config": config}}
    stated = str(path) if is_file(str(path)) else value
    model = load_model_input(stated)
    if _is_catalog_name(value):
        return {"name": value, "model": {"kind": "catalog", "name": value}}
    return {"name": _stem(path), "model": {"kind": "layers", "spec": model.model_dump(mode="json")}}


def _clusters(value: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """Named clusters: `preset:N`, `preset:N,M,…`, a path beside the file, or `{name, devices: [N, …]}`."""
    if isinstance(value, Mapping) and "cluster" in value:
        yield dict(value)
    elif isinstance(value, Mapping) and "devices" in value and "kind" not in value:
        counts = value["devices"] if isinstance(value["devices"], list) else [value["devices"]]
        for count in counts:
            yield from _clusters(f"{value.get('name', '')}:{count}", folder)
    elif isinstance(value, Mapping):
        yield {"name": str(value.get("name", "cluster")), "cluster": dict(value)}
    elif not isinstance(value, str):
        raise BadInput(
            f"clusters holds a {type(value).__name__}; give names such as dgx-h100:64, paths or objects"
        )
    else:
        yield from _stated_clusters(value, folder)


def _stated_clusters(text: str, folder: Path) -> Iterator[dict[str, Any]]:
    path = folder / text
    if is_file(str(path)):
        cluster = load_cluster_input(str(path))
        yield {"name": _stem(path), "cluster": {"kind": "spec", "spec": cluster.model_dump(mode="json")}}
        return
    preset, _, counts = text.partition(":")
    for count in counts.split(",") if counts else [""]:
        stated = f"{preset}:{count.strip()}" if count else preset
        cluster = load_cluster_input(stated)
        yield {
            "name": stated,
            "cluster": {"kind": "preset", "name": preset, "devices": cluster.num_devices},
        }


def _is_catalog_name(text: str) -> bool:
    from cost_models.profiles import list_models

    return text in list_models()


def _stem(path: Path) -> str:
    """A short name: the file's, or its folder's for a config.json."""
    return (path.resolve().parent.name if path.stem == "config" else path.stem)[:80] or "model"
