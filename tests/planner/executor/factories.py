"""Models as a user would write them, for the factory's tests."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, ROWS = 16, 32


class Layer(nn.Module):
    """A feed-forward sub-layer with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, WIDTH]."""
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    """A table, layers in order, a head."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.head = nn.Linear(WIDTH, ROWS, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        """[B, S] -> logits [B, S, ROWS]."""
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


class Jumping(Model):
    """A model whose forward is not its submodules in order."""

    def forward(self, ids: Tensor) -> Tensor:
        """The first layer runs twice."""
        x = self.layers[0](self.table(ids))
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


STAGES = (("table", "layers.0", "layers.1"), ("layers.2", "layers.3", "head"))


def plain() -> nn.Module:
    """No hints."""
    return Model()


def hinted() -> dict[str, Any]:
    """Two stages and a division of the feed-forward."""
    return {
        "module": Model(),
        "stages": STAGES,
        "tp_plan": {"layers.*.up": "colwise", "layers.*.down": "rowwise"},
        "example_batch": torch.arange(8).view(1, 8),
    }


def tied() -> dict[str, Any]:
    """The head is the table."""
    return {"module": Model(tied=True), "stages": STAGES}


def jumping() -> dict[str, Any]:
    """Stages that do not compute what the module does."""
    return {**hinted(), "module": Jumping()}


def incomplete() -> dict[str, Any]:
    """No stage holds the head."""
    return {"module": Model(), "stages": (STAGES[0], STAGES[1][:-1])}


def listed() -> dict[str, Any]:
    """A stage names the list of layers instead of its entries."""
    return {"module": Model(), "stages": (("table",), ("layers", "head"))}


def unfit() -> dict[str, Any]:
    """An example that the module does not take."""
    return {**hinted(), "example_batch": torch.zeros(1, 8)}


def unlisted() -> dict[str, Any]:
    """Stages that are no lists."""
    return {"module": Model(), "stages": 2}


def misspelt() -> dict[str, Any]:
    """An unknown hint."""
    return {"module": Model(), "stage": STAGES}


def failing() -> nn.Module:
    """Raises."""
    raise RuntimeError("no weights here")


def number() -> int:
    """No module."""
    return 3


def frozen() -> dict[str, Any]:
    """The table, which is the head too, and the first layer are not trained."""
    module = Model(tied=True)
    for part in (module.table, module.layers[0]):
        part.requires_grad_(False)
    return {
        "module": module,
        "stages": STAGES,
        "tp_plan": {"layers.*.up": "colwise", "layers.*.down": "rowwise"},
    }


def untrained() -> nn.Module:
    """Nothing is trained."""
    return Model().requires_grad_(False)


def lazy() -> nn.Module:
    """Shapes are not known before the first call."""
    return nn.Sequential(nn.Embedding(ROWS, WIDTH), nn.LazyLinear(ROWS))


class Detached(Model):
    """A model that cuts its output off."""

    def forward(self, ids: Tensor) -> Tensor:
        """Logits without a graph."""
        return super().forward(ids).detach()


def detached() -> nn.Module:
    """Its loss depends on nothing."""
    return Detached()
