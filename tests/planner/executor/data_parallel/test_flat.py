"""What flat buffers leave alone, and what describes parameters before they move."""

import torch
from torch import nn

from planner.executor.data_parallel.flat import settle_buffers, settle_frozen
from planner.executor.data_parallel.records import describe


def test_what_is_not_trained_follows_the_dtype_and_buffers_keep_theirs() -> None:
    module = nn.BatchNorm1d(3)
    module.weight.requires_grad_(False)
    settle_frozen(module, "cpu", torch.bfloat16)
    settle_buffers(module, "cpu")
    assert module.weight.dtype is torch.bfloat16
    assert module.bias.dtype is torch.float32  # trained: it lies in a buffer, whose dtype is decided there
    assert module.running_mean is not None
    assert module.running_mean.dtype is torch.float32


class Marked(nn.Module):
    """A head as the executor builds it: rows padded by vocabulary, positions beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(8, 4))
        self.table.unpadded_rows = 7  # type: ignore[attr-defined]
        self.positions = nn.Parameter(torch.zeros(5, 4))
        self.table.tie_name = "words"  # type: ignore[attr-defined]


def test_matrices_are_told_from_tables() -> None:
    chunk = nn.ModuleDict(
        {"embed": Marked(), "up": nn.Linear(4, 8), "experts": nn.ParameterList([torch.zeros(2, 3, 4)])}
    )
    records, _ = describe([chunk])
    assert {record.name: record.is_matrix for record in records} == {
        "embed.table": False,
        "embed.positions": False,
        "up.weight": True,  # as long as the table, but the table is marked, so its length says nothing
        "up.bias": False,
        "experts.0": True,
    }
    assert (records[0].tie, records[0].rows) == ("words", 7)


def test_a_users_head_is_as_long_as_the_table() -> None:
    chunk = nn.ModuleDict(
        {"table": nn.Embedding(8, 4), "hidden": nn.Linear(4, 4), "head": nn.Linear(4, 8, bias=False)}
    )
    assert [record.is_matrix for record in describe([chunk])[0]] == [False, True, False, False]


def test_frozen_and_shared_parameters() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    first.bias.requires_grad_(False)
    records, parameters = describe([nn.ModuleList([first, second])])
    assert [record.name for record in records] == ["0.weight", "1.bias"]
    assert parameters[0] is first.weight
