"""Which parts of a chunk are sharded as one, and what is refused."""

import pytest
from torch import nn

from cost_models.errors import BadInput
from planner.executor.data_parallel.base import DataParallelSettings
from planner.executor.data_parallel.units import units_of
from planner.executor.data_parallel.wrap import wrap
from tests.planner.executor.strategies import strategy


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): nn.Linear(2, 2) for index in range(4)})


def test_each_layer_is_a_unit() -> None:
    chunk = Layered()
    assert units_of(chunk) == [[layer] for layer in chunk.layers.values()]


def test_layers_that_share_a_parameter_are_one() -> None:
    chunk = Layered()
    chunk.layers["3"].weight = chunk.layers["0"].weight
    layers = list(chunk.layers.values())
    assert units_of(chunk) == [[layers[0], layers[3]], [layers[1]], [layers[2]]]


def test_a_layer_that_shares_with_two_units_joins_them() -> None:
    chunk = Layered()
    chunk.layers["3"].weight, chunk.layers["3"].bias = chunk.layers["0"].weight, chunk.layers["1"].bias
    layers = list(chunk.layers.values())
    assert units_of(chunk) == [[layers[0], layers[1], layers[3]], [layers[2]]]


def test_parts_beside_and_above_lists_of_layers() -> None:
    body = nn.Module()
    body.embedding = nn.Embedding(3, 2)
    body.blocks = nn.ModuleList([nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])
    model = nn.Module()
    model.body = body
    model.head = nn.Linear(2, 3)
    blocks = list(body.blocks)
    assert units_of(model) == [[body.embedding], [blocks[0]], [blocks[2]], [model.head]]


def test_an_engine_of_another_framework_is_refused() -> None:
    with pytest.raises(BadInput, match="engine megatron with zero 1 is not run by this executor"):
        wrap([nn.Linear(1, 1)], strategy(zero=1), None, DataParallelSettings(engine="megatron"))  # type: ignore[arg-type]
