"""Any nn.Module: counted by structure, run with its example batch, refused in one sentence where that fails."""

import sys
from types import ModuleType

import pytest

from cost_models.errors import InvalidModel
from cost_models.operators import Attention, GroupedLinear
from cost_models.readers import is_factory, load_model, read_torch_module
from cost_models.specs.counts import count_parameters, forward_flops
from cost_models.specs.model import Role

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.is_causal = True

    def forward(self, x):
        q, k, v = (
            each.unflatten(-1, (4, -1)).transpose(1, 2) for each in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Tiny(nn.Module):
    def __init__(self, layers: int = 3, width: int = 16, vocab: int = 50, shared: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        one = Block(width)
        self.blocks = nn.ModuleList(one if shared else Block(width) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Routed(nn.Module):
    """Two of four experts, in a loop that asks the data who goes where."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.top_k = 2
        self.gate = nn.Linear(width, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        chosen = self.gate(x).topk(self.top_k).indices
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).any(-1).nonzero(as_tuple=True)
            out[rows] += expert(x[rows])
        return out


# a block: norm 32, qkv 16 x 48 + 48, out 16 x 16 + 16; table 50 x 16, tied
BLOCK, TABLE = 32 + 16 * 48 + 48 + 16 * 16 + 16, 50 * 16


def test_a_module_is_counted_and_run_with_its_batch():
    model = read_torch_module(lambda: (Tiny(), torch.zeros(2, 64, dtype=torch.long)), name="tiny")
    assert (model.name, model.reader, model.vocab_size, model.tied_embeddings) == (
        "tiny",
        "torch_module",
        50,
        True,
    )
    assert count_parameters(model).parameters == 3 * BLOCK + TABLE
    block = next(layer for layer in model.layers if layer.role is Role.BLOCK)
    assert block.count == 3
    attention = next(op for op in model.kinds[block.kind].operators if isinstance(op, Attention))
    assert (attention.heads, attention.qk_dim, attention.causal) == (4, 4, True)
    # per token 2 x (3 x 16 x 64 + 16 x 50), and 3 layers x 2 x 32 keys x 2 x 16 features of causal attention
    assert forward_flops(model, 64) == 64 * (2 * (3 * 16 * 64 + 16 * 50) + 3 * 2 * 32 * 2 * 16)


def test_one_block_used_thrice_is_stored_once_and_run_thrice():
    model = read_torch_module(Tiny(shared=True), torch.zeros(1, 32, dtype=torch.long))
    assert count_parameters(model).parameters == BLOCK + TABLE
    assert [layer.count for layer in model.layers if layer.shares] == [3]


def test_experts_in_a_list_count_by_the_routers_choice():
    model = read_torch_module(nn.Sequential(nn.Linear(8, 8), Routed()), torch.zeros(4, 8))
    counts = count_parameters(model)
    assert counts.parameters == 72 + 32 + 4 * 64
    assert counts.active == counts.parameters - 2 * 64
    grouped = [op for kind in model.kinds.values() for op in kind.operators if isinstance(op, GroupedLinear)]
    assert [(op.experts, op.top_k, op.in_features, op.out_features) for op in grouped] == [(4, 2, 8, 8)]


def test_images_make_a_batch_of_samples():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1))
    model = read_torch_module(net, torch.zeros(2, 3, 32, 32))
    assert model.image_size == 32 and model.is_vision
    # 2 x positions x (3 x 8 x 9 + 8 x 4 x 9)
    assert forward_flops(model) == 2 * 32 * 32 * (216 + 288)


def test_a_module_that_is_handed_in_stays_as_it_was():
    mine = Tiny()
    before = mine.head.weight.detach().clone()
    read_torch_module(mine, torch.zeros(1, 8, dtype=torch.long))
    assert torch.equal(mine.head.weight, before) and mine.head.weight is mine.table.weight
    assert mine.head.weight.dtype == torch.float32


def test_what_the_executor_takes_from_a_factory_is_taken_here():
    batch = torch.zeros(1, 64, dtype=torch.long)
    named = read_torch_module(lambda: {"module": Tiny(), "example_batch": batch, "stages": None})
    assert forward_flops(named, 64) == forward_flops(read_torch_module(Tiny(), batch), 64)


def test_without_a_batch_costs_are_estimated_and_said_to_be():
    model = read_torch_module(Tiny)
    assert count_parameters(model).parameters == 3 * BLOCK + TABLE
    assert any("no example batch" in each.value for each in model.assumed)


def fail():
    raise ValueError("no such size\nsecond line")


@pytest.mark.parametrize(
    ("factory", "words"),
    [(fail, "no such size second line"), (lambda: 7, "returned a int"), (nn.Identity, "no parameters")],
)
def test_factories_that_fail_are_refused_in_one_line(factory, words):
    with pytest.raises(InvalidModel, match=words) as caught:
        read_torch_module(factory)
    assert "\n" not in caught.value.detail


def test_a_factory_is_named_by_its_path(monkeypatch):
    mine = ModuleType("my_models")
    mine.tiny = Tiny
    monkeypatch.setitem(sys.modules, "my_models", mine)
    assert count_parameters(load_model("my_models:tiny")).parameters == 3 * BLOCK + TABLE
    for wrong in ("my_models:nothing", "no_such_module:tiny"):
        assert is_factory(wrong)
        with pytest.raises(InvalidModel, match="cannot be imported"):
            load_model(wrong)
    assert not is_factory("dgx-h100:8") and not is_factory("folder/config.json")
