"""Holds a manifest against the models of the official client: fields known, of their types, required ones there."""

import re
from typing import Any

from kubernetes import client

KINDS = {
    "Deployment": client.V1Deployment,
    "Service": client.V1Service,
    "ServiceAccount": client.V1ServiceAccount,
    "PodDisruptionBudget": client.V1PodDisruptionBudget,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "ConfigMap": client.V1ConfigMap,
    "PodSpec": client.V1PodSpec,
}
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": (str, int, dict)}
LIST = re.compile(r"list\[(.+)\]")
MAPPING = re.compile(r"dict\(str, (.+)\)|dict\[str, (.+)\]")


def faults(kind: str, manifest: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest, each with its path."""
    return list(_faults(KINDS[kind], manifest, kind))


def _faults(model: Any, values: Any, path: str) -> list[str]:
    if not isinstance(values, dict):
        return [f"{path} is no object"]
    names = {wire: name for name, wire in model.attribute_map.items()}
    found = [f"{path}.{key} is not known" for key in values if key not in names]
    for key, value in values.items():
        if key in names:
            found += _typed(model.openapi_types[names[key]], value, f"{path}.{key}")
    return found + _missing(model, values, names, path)


def _missing(model: Any, values: dict[str, Any], names: dict[str, str], path: str) -> list[str]:
    """The client's models refuse None where a field is required."""
    given = {name: values.get(wire) for wire, name in names.items()}
    try:
        model(**given)
    except ValueError as error:
        return [f"{path}: {error}"]
    return []


def _typed(kind: str, value: Any, path: str) -> list[str]:
    listed, mapped = LIST.fullmatch(kind), MAPPING.fullmatch(kind)
    if listed:
        if not isinstance(value, list):
            return [f"{path} is no list"]
        return [
            each for index, item in enumerate(value) for each in _typed(listed[1], item, f"{path}[{index}]")
        ]
    if mapped:
        if not isinstance(value, dict):
            return [f"{path} is no mapping"]
        inner = mapped[1] or mapped[2]
        return [each for key, item in value.items() for each in _typed(inner, item, f"{path}.{key}")]
    if kind in PLAIN:
        right = isinstance(value, PLAIN[kind]) and not (kind == "int" and isinstance(value, bool))
        return [] if right else [f"{path} is {value!r}, not {kind}"]
    model = getattr(client, kind, None)
    return [] if model is None else _faults(model, value, path)
