"""The ends of a model: embedding layer, what stands between stacks, final norm, head and loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cost_models.operators import CrossEntropy, Embedding, LmHead
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.operators.traced import Growth
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.torch_module.costs import Traced, UnitCost
from cost_models.readers.torch_module.gaps import gap_costs, total_cost
from cost_models.readers.torch_module.kinds import Scale, Weights, attention_operators, traced
from cost_models.readers.torch_module.trace import Prepared
from cost_models.specs.model import Layer, LayerKind, Role, Stack

if TYPE_CHECKING:
    from torch import nn


def tables(model: nn.Module) -> frozenset[int]:
    """Identities of tables that are looked up, not multiplied."""
    from torch import nn

    return frozenset(
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    )


class Ends:
    """Layers in front of and behind the blocks; each parameter of no layer stands in exactly one of them."""

    def __init__(self, prepared: Prepared, found: Traced, beside: Sequence[UnitCost], scale: Scale) -> None:
        self._prepared, self._found = prepared, found
        self._beside, self._scale = beside, scale
        self._tables = tables(prepared.model)
        outside = {id(each.parameter) for each in prepared.structure.outside}
        table, head = _matrix(prepared.table), _matrix(prepared.head)
        if table is not None and (found.side or id(table) not in outside or _count(prepared.table) != 1):
            table = None
        if head is not None and (found.side or id(head) not in outside or not _is_plain(prepared.head)):
            head = None
        if head is not None and id(head) in self._tables and head is not table:
            head = None  # tied to a table that has no operator of its own (a decoder's beside an encoder's)
        self._table_weight, self._head_weight = table, head

    @property
    def tied(self) -> bool:
        """Whether the head is the token table."""
        return self._table_weight is not None and self._table_weight is self._head_weight

    @property
    def vocabulary(self) -> int:
        """Rows of the head, else of the table."""
        weight = self._head_weight if self._head_weight is not None else self._table_weight
        return 0 if weight is None else int(weight.shape[0])

    def layers(
        self, stacks: Sequence[Stack], kinds: dict[str, LayerKind]
    ) -> tuple[tuple[Layer, ...], tuple[Layer, ...], tuple[Layer, ...]]:
        """Embedding layer, connector where there is one, head; their kinds are added to `kinds`."""
        embedding, between, head = self._outside()
        before, inner, after = gap_costs(
            self._found, with_table=self._table_weight is None, with_head=self._head_weight is None
        )
        costs = (before, total_cost((inner, *self._beside)), after)
        own = [stack.name for stack in stacks if not stack.positions] or [stacks[0].name]
        width = next((kind.boundary_width for kind in kinds.values() if kind.boundary_width), 0)
        front: list[Operator] = [*self._table(), traced("embedding_rest", embedding, costs[0], self._scale)]
        front += attention_operators(costs[0])
        kinds["embedding"] = layer_kind("embedding", front, width)
        middle: tuple[Layer, ...] = ()
        if between != Weights(0, 0) or costs[1].launches or costs[1].flops != Growth():
            operators = [traced("between", between, costs[1], self._scale), *attention_operators(costs[1])]
            kinds["connector"] = layer_kind("connector", operators, width)
            middle = (Layer(kind="connector", role=Role.CONNECTOR, stack=own[0]),)
        back = [
            traced("head_rest", head, costs[2], self._scale),
            *attention_operators(costs[2]),
            *self._head(),
        ]
        kinds["head"] = layer_kind("head", back, width, cut_after=False)
        first = (Layer(kind="embedding", role=Role.EMBEDDING, stack=own[0]),)
        return first, middle, (Layer(kind="head", role=Role.HEAD, stack=own[-1]),)

    def _outside(self) -> tuple[Weights, Weights, Weights]:
        """Parameters of no layer and no operator of their own: embedding, between the stacks, behind the last layer."""
        structure = self._prepared.structure
        order = {id(p): place for place, p in enumerate(self._prepared.model.parameters())}
        inside = {id(p) for layer in structure.layers for p in layer.module.parameters()}
        last = max(order[key] for key in inside)
        apart = {id(p) for p in (self._table_weight, self._head_weight) if p is not None}
        bias = None if self._head_weight is None else _bias(self._prepared.head)
        apart |= {id(bias)} if bias is not None else set()
        found: tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]] = ([], [], [])
        for each in structure.outside:
            if id(each.parameter) in apart:
                continue
            place = 0 if each.embedding else 2 if order[id(each.parameter)] > last else 1
            found[place].append(each.parameter)
        embedding, between, head = (Weights.of(held, self._tables) for held in found)
        return embedding, between, head

    def _table(self) -> tuple[Operator, ...]:
        if self._table_weight is None:
            return ()
        rows, width = (int(size) for size in self._table_weight.shape)
        tie = EMBEDDING_TIE if self.tied else ""
        return (Embedding(name="embedding", vocab_size=rows, width=width, tie=tie),)

    def _head(self) -> tuple[Operator, ...]:
        """The language-model head and its loss, where the module has one of plain form."""
        if self._head_weight is None:
            return ()
        rows, width = (int(size) for size in self._head_weight.shape)
        tie = EMBEDDING_TIE if self.tied else ""
        bias = _bias(self._prepared.head) is not None
        return (
            LmHead(name="logits", inputs=("head_rest",), vocab_size=rows, width=width, tie=tie, bias=bias),
            CrossEntropy(name="loss", inputs=("logits",), vocab_size=rows),
        )


def _matrix(module: nn.Module | None) -> nn.Parameter | None:
    """The weight of a table or a linear, if it is a matrix."""
    weight = vars(module)["_parameters"].get("weight") if module is not None else None
    return weight if weight is not None and weight.dim() == 2 else None


def _bias(module: nn.Module | None) -> nn.Parameter | None:
    return vars(module)["_parameters"].get("bias") if module is not None else None


def _is_plain(module: nn.Module | None) -> bool:
    """A linear and nothing else."""
    from torch import nn

    return isinstance(module, nn.Linear) and _count(module) == 1 + (module.bias is not None)


def _count(module: nn.Module | None) -> int:
    return 0 if module is None else sum(1 for _ in module.parameters())
