"""What a model is made of: parameters by role, kinds of layers, FLOPs of a token."""

from typing import Any

from cost_models.specs.counts import (
    active_layer_parameters,
    count_parameters,
    forward_flops_per_token,
    layer_parameters,
)
from cost_models.specs.flops import LayerFlops, layer_flops
from cost_models.specs.model import Layer, ModelSpec, Role

DEFAULT_SEQ_LEN = 4096

Counted = tuple[tuple[Layer, LayerFlops], ...]


def inspect_model(model: ModelSpec, seq_len: int | None) -> dict[str, object]:
    """`planner inspect --json`; forward FLOPs per token of a sequence of `seq_len` (vision: per sample).

    Without `seq_len` the model's own limit, at most 4,096, is taken. FLOPs of layers and kinds are those of one
    layer; with the multi-token-prediction layers left out they add up to the model's.
    """
    counts = count_parameters(model)
    length = seq_len or min(model.max_seq_len or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
    counted = layer_flops(model, length)
    tokens = 1 if model.is_vision else length
    return {
        "name": model.name,
        "family": model.family,
        "reader": model.reader,
        "parameters": counts.parameters,
        "trainable_parameters": counts.trainable,
        "active_parameters": counts.active,
        "embedding_parameters": counts.embedding,
        "head_parameters": _head_parameters(model),
        "mtp_parameters": counts.mtp,
        "tied_embeddings": model.tied_embeddings,
        "kinds": _kinds(model, counted, tokens),
        "layers": _layers(model, counted, tokens),
        "forward_flops_per_token": forward_flops_per_token(model, length),
        "attention_flops_per_token": _attention_flops(counted) / tokens,
        "seq_len": None if model.is_vision else length,
        "assumed": [
            {"key": a.key, "value": a.value, "changes_parameters": a.changes_parameters}
            for a in model.assumed
        ],
    }


def _head_parameters(model: ModelSpec) -> int:
    """Elements of the layers behind the blocks; a head that is the token table counts with the embedding."""
    kinds = {layer.kind for layer in model.layers if layer.role is Role.HEAD}
    groups = [
        group
        for kind in kinds
        for operator in model.kinds[kind].operators
        for group in operator.stored()
        if not (model.tied_embeddings and group.tie)
    ]
    return sum(group.elements for group in groups)


def _attention_flops(counted: Counted) -> float:
    return sum(layer.count * flops.attention for layer, flops in counted if layer.role is not Role.MTP)


def _kinds(model: ModelSpec, counted: Counted, tokens: int) -> list[dict[str, object]]:
    """One entry a kind in each stack, in order of appearance; `parameters` of one layer, shared weights included."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for layer, flops in counted:
        kind = model.kinds[layer.kind]
        entry = found.setdefault(
            (layer.stack, layer.kind),
            {
                "kind": layer.kind,
                "stack": layer.stack,
                "role": layer.role.value,
                "layers": 0,
                "parameters": layer_parameters(kind),
                "active_parameters": active_layer_parameters(kind),
                "shares": layer.shares,
                "forward_flops_per_token": flops.forward / tokens,
                "attention_flops_per_token": flops.attention / tokens,
            },
        )
        entry["layers"] += layer.count
    return list(found.values())


def _layers(model: ModelSpec, counted: Counted, tokens: int) -> list[dict[str, object]]:
    """One entry a layer, in execution order."""
    sizes = {name: layer_parameters(kind) for name, kind in model.kinds.items()}
    every = [(layer, flops) for layer, flops in counted for _ in range(layer.count)]
    return [
        {
            "index": index,
            "kind": layer.kind,
            "role": layer.role.value,
            "stack": layer.stack,
            "parameters": sizes[layer.kind],
            "forward_flops_per_token": flops.forward / tokens,
        }
        for index, (layer, flops) in enumerate(every)
    ]
