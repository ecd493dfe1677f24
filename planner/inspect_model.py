"""What a model is made of: parameters by role, layers, FLOPs of a token."""

from cost_models.specs.counts import count_parameters, forward_flops_per_token, layer_parameters
from cost_models.specs.model import ModelSpec

DEFAULT_SEQ_LEN = 4096


def inspect_model(model: ModelSpec, seq_len: int | None) -> dict[str, object]:
    """`planner inspect --json`; forward FLOPs per token of a sequence of `seq_len` (vision: per sample).

    Without `seq_len` the model's own limit, at most 4,096, is taken.
    """
    counts = count_parameters(model)
    length = seq_len or min(model.max_seq_len or DEFAULT_SEQ_LEN, DEFAULT_SEQ_LEN)
    return {
        "name": model.name,
        "family": model.family,
        "parameters": counts.parameters,
        "trainable_parameters": counts.trainable,
        "active_parameters": counts.active,
        "embedding_parameters": counts.embedding,
        "mtp_parameters": counts.mtp,
        "layers": _layers(model),
        "forward_flops_per_token": forward_flops_per_token(model, length),
        "seq_len": None if model.is_vision else length,
        "assumed": [
            {"key": a.key, "value": a.value, "changes_parameters": a.changes_parameters}
            for a in model.assumed
        ],
    }


def _layers(model: ModelSpec) -> list[dict[str, object]]:
    """One entry a layer, in execution order."""
    sizes = {name: layer_parameters(kind) for name, kind in model.kinds.items()}
    kinds = [layer for layer in model.layers for _ in range(layer.count)]
    return [
        {
            "index": index,
            "kind": layer.kind,
            "role": layer.role.value,
            "stack": layer.stack,
            "parameters": sizes[layer.kind],
        }
        for index, layer in enumerate(kinds)
    ]
