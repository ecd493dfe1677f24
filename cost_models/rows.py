"""The rows of a layer table: embedding, every kind of block, head; which layers each stands for."""

from dataclasses import dataclass, replace

from cost_models.operators import CrossEntropy, LmHead
from cost_models.operators.base import Shard
from cost_models.operators.frozen import step_flops_share
from cost_models.specs.job import Job
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role
from cost_models.units import Num


@dataclass(frozen=True, slots=True)
class RowLayer:
    """One layer kind in one stack, `count` times in the row."""

    kind: LayerKind
    stack: str
    count: int
    held: frozenset[str] = frozenset()
    """Weight-sharing groups whose weights an earlier block of the same stage stores."""
    shares: str = ""
    """The group of the whole layer, where all its weights are shared."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Distinct rows of a model: index 0 the embedding, the last the head (with trained MTP layers, unless these are the
    last block), between them the distinct kinds of blocks; `blocks[l]` is the row of block l, `labels[l]` its name."""

    rows: tuple[tuple[RowLayer, ...], ...]
    blocks: tuple[int, ...]
    labels: tuple[str, ...]
    kept: tuple[int, ...] = ()
    """Rows of blocks that a full recompute leaves as they are: Megatron-Core's recompute of the first layers of a stage
    passes over prediction layers (multi_token_prediction.py), and is priced so for all layers too."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Row of each line of a layer table: embedding, blocks in order, head."""
        return (0, *self.blocks, len(self.rows) - 1)


def model_rows(model: ModelSpec, job: Job) -> Rows:
    """Rows of a model; MTP layers stand with the head, or as the last block, only when trained."""
    kinds: dict[tuple[str, str, frozenset[str], bool], tuple[int, RowLayer]] = {}
    stored: set[str] = set()
    whole = model.whole_stacks
    blocks: list[int] = []
    labels: list[str] = []
    for layer in model.layers:
        if layer.role is Role.BLOCK and layer.stack not in whole:
            labels += [layer.kind] * layer.count
            groups = shared_groups(model, layer)
            left = layer.count
            while left:
                run = 1 if groups - stored else left
                row = RowLayer(
                    model.kinds[layer.kind], layer.stack, 1, groups & frozenset(stored), layer.shares
                )
                blocks += [kinds.setdefault(_row_key(row), (1 + len(kinds), row))[0]] * run
                stored |= groups
                left -= run
    middle: tuple[tuple[RowLayer, ...], ...] = tuple((row,) for _, row in kinds.values())
    head = _row(model, [layer for layer in model.layers if layer.role is Role.HEAD])
    predictions = [layer for layer in model.layers if layer.role is Role.MTP and job.options.train_mtp]
    kept: tuple[int, ...] = ()
    if predictions and model.mtp_in_stages:
        apart = [_apart(row) for row in _row(model, predictions)]
        kept = (1 + len(middle),)
        blocks += kept
        labels.append(predictions[0].kind)
        middle = (*middle, tuple(body for body, _ in apart))
        head += tuple(loss for _, loss in apart)
    else:
        head += _row(model, predictions)
    embedding = [
        layer
        for layer in model.layers
        if layer.role in (Role.EMBEDDING, Role.CONNECTOR)
        or (layer.role is Role.BLOCK and layer.stack in whole)
    ]
    rows = (_row(model, embedding), *middle, head)
    return Rows(rows, tuple(blocks), tuple(labels), kept)


def _apart(row: RowLayer) -> tuple[RowLayer, RowLayer]:
    """A prediction layer without its head and loss, and these alone, which read what it hands on."""
    is_last = [isinstance(op, LmHead | CrossEntropy) for op in row.kind.operators]
    body = tuple(op for op, last in zip(row.kind.operators, is_last, strict=True) if not last)
    loss = tuple(
        op.model_copy(update={"inputs": ("x",)}) if isinstance(op, LmHead) else op
        for op, last in zip(row.kind.operators, is_last, strict=True)
        if last
    )
    kinds = (
        row.kind.model_copy(update={"operators": body}),
        row.kind.model_copy(update={"name": f"{row.kind.name}_head", "operators": loss, "scopes": ()}),
    )
    return replace(row, kind=kinds[0]), replace(row, kind=kinds[1])


def shared_groups(model: ModelSpec, layer: Layer) -> frozenset[str]:
    """Weight-sharing groups that a layer takes part in, as a whole or by its operators."""
    groups = {operator.shares for operator in model.kinds[layer.kind].operators} | {layer.shares}
    return frozenset(groups - {""})


def _row_key(row: RowLayer) -> tuple[str, str, frozenset[str], bool]:
    """Rows that cost the same: one kind in one stack, with or without the weights that it shares."""
    return row.kind.name, row.stack, row.held, row.shares in row.held


def _row(model: ModelSpec, layers: list[Layer]) -> tuple[RowLayer, ...]:
    return tuple(RowLayer(model.kinds[layer.kind], layer.stack, layer.count) for layer in layers)


def stack_shard(model: ModelSpec, job: Job, stack_name: str, at: Shard) -> Shard:
    """The shard point of a stack: its own positions, and those of the stack its cross-attention reads."""
    stacks = {stack.name: stack for stack in model.stacks}
    stack = stacks[stack_name]
    own = float(stack.patches(at.image_size) or job.length_of(stack.length))
    context = own
    if stack.reads:
        read = stacks[stack.reads[0]]
        context = float(read.patches(at.image_size) or job.length_of(read.length))
    return Shard(at.sequences, own, context, at.image_size, at.tp, at.cp, at.ep, at.etp, at.sp, at.load)


def step_model_flops(model: ModelSpec, job: Job) -> float:
    """Model FLOPs of one optimizer step, without recompute: 3 x forward (design section 9), 2 x of frozen weights."""
    at = Shard(float(job.global_batch), 1.0, 1.0, job.image_size)
    total: Num = 0.0
    rows = model_rows(model, job)
    index = rows.layers
    per_row = [_row_flops(model, job, row, at) for row in rows.rows]
    for line in index:
        total = total + per_row[line]
    return float(total)


def _row_flops(model: ModelSpec, job: Job, row: tuple[RowLayer, ...], at: Shard) -> float:
    total: Num = 0.0
    for layer in row:
        shard = stack_shard(model, job, layer.stack, at)
        total = total + layer.count * sum(
            (step_flops_share(op) + job.reference.forwards) * op.model_flops(shard)
            for op in layer.kind.operators
        )
    return float(total)
