"""The rows of a layer table: embedding, every kind of block, head; which layers each stands for."""

from dataclasses import dataclass

from cost_models.operators.base import Shard
from cost_models.specs.job import Job
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role
from cost_models.units import Num


@dataclass(frozen=True, slots=True)
class RowLayer:
    """One layer kind in one stack, `count` times in the row."""

    kind: LayerKind
    stack: str
    count: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Distinct rows of a model: index 0 the embedding, the last the head (with trained MTP layers), between them the
    distinct kinds of blocks; `blocks[l]` is the row of block l, `labels[l]` its name."""

    rows: tuple[tuple[RowLayer, ...], ...]
    blocks: tuple[int, ...]
    labels: tuple[str, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """Row of each line of a layer table: embedding, blocks in order, head."""
        return (0, *self.blocks, len(self.rows) - 1)


def model_rows(model: ModelSpec, job: Job) -> Rows:
    """Rows of a model; MTP layers stand with the head, only when trained."""
    kinds: dict[tuple[str, str], int] = {}
    blocks: list[int] = []
    labels: list[str] = []
    for layer in model.layers:
        if layer.role is Role.BLOCK:
            index = kinds.setdefault((layer.kind, layer.stack), 1 + len(kinds))
            blocks += [index] * layer.count
            labels += [layer.kind] * layer.count
    middle = tuple((RowLayer(model.kinds[kind], stack, 1),) for kind, stack in kinds)
    head = [layer for layer in model.layers if layer.role is Role.HEAD]
    if job.options.train_mtp:
        head += [layer for layer in model.layers if layer.role is Role.MTP]
    embedding = [layer for layer in model.layers if layer.role is Role.EMBEDDING]
    rows = (_row(model, embedding), *middle, _row(model, head))
    return Rows(rows, tuple(blocks), tuple(labels))


def _row(model: ModelSpec, layers: list[Layer]) -> tuple[RowLayer, ...]:
    return tuple(RowLayer(model.kinds[layer.kind], layer.stack, layer.count) for layer in layers)


def stack_shard(model: ModelSpec, job: Job, stack_name: str, at: Shard) -> Shard:
    """The shard point of a stack: its own positions, and those of the stack its cross-attention reads."""
    stacks = {stack.name: stack for stack in model.stacks}
    stack = stacks[stack_name]
    own = float(stack.patches(at.image_size) or job.length_of(stack.length))
    context = own
    if stack.reads:
        context = float(job.length_of(stacks[stack.reads[0]].length))
    return Shard(at.sequences, own, context, at.image_size, at.tp, at.cp, at.ep, at.etp, at.sp, at.load)


def step_model_flops(model: ModelSpec, job: Job) -> float:
    """Model FLOPs of one optimizer step, forward and backward = 3 x forward (design section 9), without recompute."""
    at = Shard(float(job.global_batch), 1.0, 1.0, job.image_size)
    total: Num = 0.0
    rows = model_rows(model, job)
    index = rows.layers
    per_row = [_row_flops(model, job, row, at) for row in rows.rows]
    for line in index:
        total = total + per_row[line]
    return 3.0 * float(total)


def _row_flops(model: ModelSpec, job: Job, row: tuple[RowLayer, ...], at: Shard) -> float:
    total: Num = 0.0
    for layer in row:
        shard = stack_shard(model, job, layer.stack, at)
        total = total + layer.count * sum(op.model_flops(shard) for op in layer.kind.operators)
    return float(total)
