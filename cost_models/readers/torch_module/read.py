"""The two ways in: a Hugging Face config that the library builds, and any factory of a module."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cost_models.errors import InvalidModel
from cost_models.readers.torch_module import cache
from cost_models.readers.torch_module.factory import is_factory, read_factory, read_torch_module
from cost_models.readers.torch_module.quiet import ONE_AT_A_TIME
from cost_models.specs.model import Assumed, ModelSpec

GENERIC: Final = frozenset(
    {
        "architectures",
        "id2label",
        "label2id",
        "problem_type",
        "model_type",
        "return_dict",
        "output_hidden_states",
        "output_attentions",
        "chunk_size_feed_forward",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "_name_or_path",
        "use_cache",
    }
)
"""Keys of every configuration class, which say nothing about layers."""
MAX_ASSUMED: Final = 200


def can_build(model_type: str) -> bool:
    """Whether torch and a transformers that knows this type are installed; neither is imported to tell."""
    if not model_type.strip() or find_spec("torch") is None:
        return False
    found = find_spec("transformers")
    if found is None or not found.submodule_search_locations:
        return False
    folder = Path(found.submodule_search_locations[0]) / "models" / "auto"
    quoted = f'"{model_type}"'
    for name in ("auto_mappings.py", "configuration_auto.py"):
        try:
            if quoted in (folder / name).read_text(encoding="utf-8"):
                return True
        except OSError:
            continue
    return False


def read_transformers(raw: Mapping[str, object], *, name: str = "") -> ModelSpec:
    """ModelSpec of a config through the library's own module; read from the cache the second time."""
    key = cache.key_of(raw)
    family = str(raw.get("model_type"))
    model = cache.load(key)
    if model is None:
        with ONE_AT_A_TIME:
            model = _read(raw, family)
        cache.store(key, model)
    return model.model_copy(update={"name": name or family})


def _read(raw: Mapping[str, object], family: str) -> ModelSpec:
    from cost_models.readers.torch_module.assemble import Assembly, Facts
    from cost_models.readers.torch_module.build import build
    from cost_models.readers.torch_module.costs import input_table, output_head, trace_model
    from cost_models.readers.torch_module.experts import find_experts
    from cost_models.readers.torch_module.inputs import token_limit
    from cost_models.readers.torch_module.structure import take_apart
    from cost_models.readers.torch_module.towers import trace_towers
    from cost_models.readers.torch_module.trace import Prepared

    built = build(raw)
    structure = take_apart(built.module)
    experts = {
        id(layer.module): find_experts(layer.module, built.config)
        for layer in {id(layer.module): layer for layer in structure.layers}.values()
    }
    prepared = Prepared(
        built.module, structure, experts, input_table(built.module), output_head(built.module)
    )
    _check_ties(raw, prepared)
    found = trace_model(prepared, built.config)
    two_lengths = bool(getattr(built.config, "is_encoder_decoder", False))
    facts = Facts(
        name=family,
        family=family,
        reader="transformers",
        hidden=_hidden(built.config),
        max_seq_len=0 if found.side else token_limit(built.config, 0) or 0,
        causal=built.named.endswith(("ForCausalLM", "LMHeadModel")),
        two_lengths=two_lengths,
        assumed=_assumed(raw, built, found.side if not found.side_stated else 0),
        semantics={"architecture": built.named, "transformers": version("transformers")},
    )
    return Assembly(prepared, found, trace_towers(prepared, found), facts).model()


def _check_ties(raw: Mapping[str, object], prepared: Any) -> None:
    """A config that asks for a head of its own must get one."""
    table, head = prepared.table, prepared.head
    same = (
        table is not None and head is not None and getattr(table, "weight", 0) is getattr(head, "weight", 1)
    )
    if raw.get("tie_word_embeddings") is False and same:
        raise InvalidModel(
            "tie_word_embeddings is false, but the class that transformers builds shares its table with the head; "
            "set it to true, or describe the model in a layers file (docs/models.md)",
            pointer="/tie_word_embeddings",
        )


def _hidden(config: Any) -> int:
    """Width of the stream, under the names that configs use."""
    for holder in (config, getattr(config, "text_config", None)):
        for key in ("hidden_size", "d_model", "n_embd", "dim", "hidden_dim", "embed_dim"):
            value = getattr(holder, key, None)
            if isinstance(value, int) and value > 0:
                return value
    return 0


def _assumed(raw: Mapping[str, object], built: Any, side: int) -> tuple[Assumed, ...]:
    """Keys that the config leaves to the library's class, which class it was, and an image size that none states."""
    found = [
        Assumed(key=key, value=str(value)[:80], changes_parameters=_may_change(value))
        for key, value in _absent(raw, built.config.to_dict())
    ][:MAX_ASSUMED]
    if not built.chosen:
        found.append(Assumed(key="architectures", value=built.named, changes_parameters=True))
    if raw.get("quantization_config") is not None:
        text = "ignored: the format of the checkpoint, not of training"
        found.append(Assumed(key="quantization_config", value=text, changes_parameters=False))
    if side:
        found.append(Assumed(key="image_size", value=str(side), changes_parameters=False))
    return tuple(found)


def _absent(raw: Mapping[str, object], full: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Keys of the library's own config that the given one does not hold, nested ones behind a dot."""
    found: list[tuple[str, object]] = []
    for key, value in full.items():
        if key in GENERIC or key.startswith("_") or key.endswith("token_id"):
            continue
        stated = raw.get(key)
        if key not in raw:
            found.append((f"{prefix}{key}", value))
        elif isinstance(value, dict) and isinstance(stated, Mapping) and "model_type" in value:
            found += _absent(stated, value, f"{prefix}{key}.")
    return found


def _may_change(value: object) -> bool:
    """Numbers and lists are sizes more often than not; words and fractions never are."""
    return isinstance(value, int | list | tuple | dict) and not isinstance(value, float)


__all__ = ["can_build", "is_factory", "read_factory", "read_torch_module", "read_transformers"]
