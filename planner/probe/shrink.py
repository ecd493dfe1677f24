"""A smaller model whose layers are some of a model's own: fewer blocks, and as many experts as fewer ranks hold."""

from collections.abc import Sequence

from cost_models.errors import InvalidModel
from cost_models.operators import AnyOperator, GroupedLinear, Router
from cost_models.specs.model import Layer, LayerKind, ModelSpec


def shrunk(model: ModelSpec, blocks: Sequence[int], experts: int) -> ModelSpec:
    """The model with only these blocks (by index, repeats allowed) and so many experts; all else stays."""
    own = tuple(layer for layer in model.stage_layers for _ in range(layer.count))
    if any(layer.shares for layer in model.layers):
        detail = (
            f"{model.name} shares weights between its blocks; a part of it is another model, run it whole"
        )
        raise InvalidModel(detail, pointer="/model")
    chosen = tuple(own[index % len(own)].model_copy(update={"count": 1}) for index in blocks)
    first = next(i for i, layer in enumerate(model.layers) if layer in model.stage_layers)
    before = model.layers[:first]
    after = tuple(layer for layer in model.layers[first:] if layer not in model.stage_layers)
    kinds = model.kinds
    if experts != model.num_experts:
        kinds = {name: _fewer_experts(kind, experts) for name, kind in model.kinds.items()}
    return model.model_copy(
        update={
            "name": f"{model.name}-probe"[:200],
            "layers": (*before, *_runs(chosen), *after),
            "kinds": kinds,
            "num_experts": experts,
        }
    )


def _runs(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Equal neighbours as one entry."""
    merged: list[Layer] = []
    for layer in layers:
        if merged and merged[-1].model_copy(update={"count": 1}) == layer:
            merged[-1] = layer.model_copy(update={"count": merged[-1].count + 1})
        else:
            merged.append(layer)
    return tuple(merged)


def _fewer_experts(kind: LayerKind, experts: int) -> LayerKind:
    return kind.model_copy(update={"operators": tuple(_resized(op, experts) for op in kind.operators)})


def _resized(operator: AnyOperator, experts: int) -> AnyOperator:
    """An operator with another number of experts; groups of experts that no longer divide are dropped."""
    if isinstance(operator, GroupedLinear):
        return operator.model_copy(update={"experts": experts})
    if isinstance(operator, Router):
        grouped = operator.groups and experts % operator.groups == 0
        groups = {} if grouped else {"groups": 0, "kept_groups": 0}
        return operator.model_copy(update={"experts": experts, **groups})
    return operator
