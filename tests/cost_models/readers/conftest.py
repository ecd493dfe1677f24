"""Shared by the tests that hold readers to counted models."""

from collections.abc import Callable
from itertools import groupby

import pytest

from cost_models.specs.counts import layer_parameters
from cost_models.specs.model import ModelSpec, Role


@pytest.fixture(scope="session")
def runs_by_stack() -> Callable[..., list[list[list[int]]]]:
    """[parameters, layers in a row] of the blocks of each stack, and of layers of the kind `also`."""

    def runs(model: ModelSpec, also: str = "") -> list[list[list[int]]]:
        found: dict[str, list[int]] = {}
        for layer in model.layers:
            if layer.role is Role.BLOCK or layer.kind == also:
                each = layer_parameters(model.kinds[layer.kind])
                found.setdefault(layer.stack, []).extend([each] * layer.count)
        return [[[size, len(list(same))] for size, same in groupby(sizes)] for sizes in found.values()]

    return runs
