"""Parameters and model FLOPs of a whole model, summed over its operators; every tie counts once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cost_models.operators import GroupedLinear
from cost_models.operators.base import Operator, ParameterGroup, Shard
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role

WIDENING = "stream_in"
"""Names of operators of the embedding layer that begin so are counted apart from the embedding."""


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Elements of a model.

    `parameters` leaves multi-token-prediction layers out, `mtp` is what they add. `active` is what one token
    meets: all but the experts it is not routed to, embedding tables whole. `embedding` is the embedding layer
    (tables, positions, its norm; a stem of convolutions). `matmul` is the active elements that multiply a
    token: heads yes; input tables, norms and biases no; shared weights at every use.
    """

    parameters: int
    trainable: int
    active: int
    embedding: int
    mtp: int
    matmul: int


def count_parameters(model: ModelSpec) -> ParameterCounts:
    """Counts of the whole model (see ParameterCounts)."""
    main = tuple(layer for layer in model.layers if layer.role is not Role.MTP)
    total = _unique(model, main)
    return ParameterCounts(
        parameters=total,
        trainable=total - _unique(model, main, frozen=True),
        active=total - _idle_experts(model, main),
        embedding=_embedding(model, main),
        mtp=_unique(model, model.layers) - total,
        matmul=sum(_matmul(model.kinds[layer.kind]) * layer.count for layer in main),
    )


def layer_parameters(kind: LayerKind) -> int:
    """Elements of one layer of this kind; weights tied to another layer are counted here too."""
    return _sum_groups(_groups(kind), set())


def active_layer_parameters(kind: LayerKind) -> int:
    """The same without the experts that a token is not routed to."""
    return layer_parameters(kind) - _idle_of_kind(kind)


def forward_flops(
    model: ModelSpec, seq_len: int = 0, *, decoder_seq_len: int = 0, image_size: int = 0, mtp: bool = False
) -> float:
    """Model FLOPs of the forward pass of one sequence (or sample): matmuls, causal and windowed attention.

    `seq_len` is the length of the first stack (T5's encoder), `decoder_seq_len` the decoder's (seq_len if 0).
    Vision models take `image_size` (the config's own if 0).
    """
    total = 0.0
    for layer in model.layers:
        if layer.role is Role.MTP and not mtp:
            continue
        at = sequence_shard(model, layer.stack, seq_len, decoder_seq_len, image_size)
        total += layer.count * sum(float(op.model_flops(at)) for op in model.kinds[layer.kind].operators)
    return total


def forward_flops_per_token(model: ModelSpec, seq_len: int) -> float:
    """Forward model FLOPs of a sequence divided by its tokens; of a vision model, of one sample."""
    flops = forward_flops(model, seq_len)
    return flops if model.is_vision else flops / seq_len


def sequence_shard(
    model: ModelSpec, stack: str, seq_len: int, decoder_seq_len: int = 0, image_size: int = 0
) -> Shard:
    """One whole sequence (or sample) of a stack on one rank."""
    lengths = {"seq_len": seq_len, "decoder_seq_len": decoder_seq_len or seq_len, "image_size": 1}
    found = next(each for each in model.stacks if each.name == stack)
    read = [each for each in model.stacks if each.name in found.reads]
    side = image_size or model.image_size
    context = read[0].patches(side) or lengths.get(read[0].length, seq_len) if read else 0
    return Shard(
        sequences=1.0,
        seq_len=float(found.patches(side) or lengths.get(found.length, seq_len)),
        context_len=float(context),
        image_size=side,
    )


def _embedding(model: ModelSpec, layers: tuple[Layer, ...]) -> int:
    """Elements of the embedding layer but for linears over its tables' rows (OPT 350M, Gemma 4)."""
    found = tuple(layer for layer in layers if layer.role is Role.EMBEDDING)
    operators = [operator for layer in found for operator in model.kinds[layer.kind].operators]
    widening = [operator for operator in operators if operator.name.startswith(WIDENING)]
    return _unique(model, found) - sum(group.elements for each in widening for group in each.parameters())


def _groups(kind: LayerKind) -> Iterator[ParameterGroup]:
    for operator in kind.operators:
        yield from operator.stored()


def _frozen_groups(kind: LayerKind) -> Iterator[ParameterGroup]:
    for operator in kind.operators:
        if operator.frozen:
            yield from operator.stored()


def _sum_groups(groups: Iterable[ParameterGroup], seen_ties: set[str]) -> int:
    """Sum of elements; a tie that was seen adds nothing, and every tie met is noted in `seen_ties`."""
    total = 0
    for group in groups:
        if group.tie and group.tie in seen_ties:
            continue
        if group.tie:
            seen_ties.add(group.tie)
        total += group.elements
    return total


def _unique(model: ModelSpec, layers: tuple[Layer, ...], *, frozen: bool = False) -> int:
    """Elements of the layers (`frozen`: of the frozen ones); a tie counts once, as does a kind in a `shares` group."""
    groups_in = _frozen_groups if frozen else _groups
    ties: set[str] = set()
    shared: set[tuple[str, str]] = set()
    total = 0
    for layer in layers:
        kind = model.kinds[layer.kind]
        group = (layer.shares, layer.kind)
        if group in shared:
            continue
        total += _sum_groups(groups_in(kind), ties)
        if layer.shares:
            shared.add(group)
        else:
            total += (layer.count - 1) * _sum_groups(groups_in(kind), set(ties))
    return total


def _idle_experts(model: ModelSpec, layers: tuple[Layer, ...]) -> int:
    """Elements of the experts that a token is not routed to; shared weights once, as they are stored."""
    idle = 0
    seen: set[tuple[str, str, str]] = set()
    for layer in layers:
        for operator in model.kinds[layer.kind].operators:
            of = (layer.shares, layer.kind) if layer.shares else (operator.shares, "")
            if (*of, operator.name) not in seen:
                idle += (1 if of[0] else layer.count) * _idle_of((operator,))
            if of[0]:
                seen.add((*of, operator.name))
    return idle


def _idle_of_kind(kind: LayerKind) -> int:
    return _idle_of(kind.operators)


def _idle_of(operators: Iterable[Operator]) -> int:
    idle = 0
    for operator in operators:
        if isinstance(operator, GroupedLinear):
            elements = sum(group.elements for group in operator.parameters())
            idle += elements - elements * operator.top_k // operator.experts
    return idle


def _matmul(kind: LayerKind) -> int:
    total = 0
    for operator in kind.operators:
        elements = sum(group.elements for group in operator.parameters() if group.matrix)
        if isinstance(operator, GroupedLinear):
            elements = elements * operator.top_k // operator.experts
        total += elements
    return total
