"""A recipe's fields in YAML: nested mappings, as Megatron-Bridge's `--config-file` and exports of NeMo 2 hold them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cost_models.errors import BadInput
from planner.strict_yaml import parse_yaml

FIRST_NEMO: Final = ("model.encoder_seq_length", "model.micro_batch_size", "model.megatron_amp_O2")
"""Fields of NeMo 1, whose settings stood under `model` altogether."""


def yaml_fields(text: str) -> dict[str, str]:
    """Dotted fields and their values, written as overrides write them; empty for a text that is no YAML mapping."""
    try:
        found = dict(_flat("", parse_yaml(text, "")))
    except BadInput:
        return {}
    first = next((field for field in FIRST_NEMO if field in found), None)
    if first:
        raise BadInput(
            f"{first} is a field of NeMo 1, whose YAML is not read; give a recipe of NeMo 2 or Megatron-LM's arguments",
            pointer=f"/{first}",
        )
    for field, value in found.items():
        if "${" in value:
            raise BadInput(
                f"{field} is {value[:60]}, a reference; write the value it stands for", pointer=f"/{field}"
            )
    return found


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not str(key).startswith("_"):  # _target_, _partial_: classes of a recipe, not fields
                yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list):
        yield prefix, " ".join(str(each) for each in value)
    elif isinstance(value, bool):
        yield prefix, str(value).lower()
    else:
        yield prefix, "" if value is None else str(value)
