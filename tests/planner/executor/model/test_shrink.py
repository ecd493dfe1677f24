"""A small model keeps the structure: kinds, ties, windows, groups of heads, what the ranks divide."""

import pytest
import torch

from cost_models.operators import Attention, Linear
from cost_models.readers import read_model
from cost_models.readers.sources import load_model
from cost_models.specs.counts import count_parameters
from cost_models.specs.model import ModelSpec, Role
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions
from planner.executor.model.shrink import Shrinkage, kept_blocks, shrink
from tests.planner.executor.model.configs import CASES

FULL_SEQ_LEN, SEQ_LEN = 8192, 16


def _small(model: ModelSpec, tp: int = 1, experts_over: int = 1) -> ModelSpec:
    blocks, _ = kept_blocks(model, (model.num_blocks,))
    image = 64 if model.is_vision else 0
    return shrink(model, Shrinkage(tp, tp, experts_over, SEQ_LEN, FULL_SEQ_LEN, blocks, image))


@pytest.mark.parametrize(
    "name",
    [
        "bert-base",
        "deepseek-v3",
        "falcon-7b",
        "gemma-2-27b",
        "gemma-3-1b",
        "gpt2",
        "gpt-oss-120b",
        "llama-3.1-405b",
        "olmo-2-7b",
        "qwen1.5-moe-a2.7b",
        "qwen3-0.6b",
        "resnet-50",
    ],
)
def test_trains_and_has_the_counted_parameters(name: str) -> None:
    small = _small(load_model(name))
    chunk = build_chunk(small, whole(small), BuildOptions())
    assert sum(p.numel() for p in chunk.parameters()) == count_parameters(small).parameters < 2_000_000
    targets = torch.randint(32, (2,) if small.is_vision else (2, SEQ_LEN))
    loss = chunk(torch.randn(2, 3, 64, 64) if small.is_vision else targets, targets)
    loss.backward()
    assert all(p.grad is not None for p in chunk.parameters())


def test_what_ranks_divide_stays_divisible() -> None:
    small = _small(load_model("mixtral-8x7b"), tp=4, experts_over=8)
    assert small.num_attention_heads == 2 * small.num_kv_heads  # grouped heads stay grouped
    assert small.num_kv_heads % 4 == 0
    assert small.num_experts % 8 == 0
    for kind in small.kinds.values():
        for operator in kind.operators:
            if isinstance(operator, Linear) and operator.split == "column":
                assert all(part.features % 4 == 0 for part in operator.parts)


def test_a_vocabulary_that_ranks_do_not_divide_stays_so() -> None:
    # 50,257 is odd; 128,256 is 4 x 32,064.
    assert _small(load_model("gpt2"), tp=4).vocab_size % 4
    assert _small(load_model("llama-3.1-8b"), tp=4).vocab_size % 4 == 0


def test_windows_stay_windows_only_where_they_were() -> None:
    def windows(name: str) -> set[int]:
        operators = [op for kind in _small(load_model(name)).kinds.values() for op in kind.operators]
        return {op.window for op in operators if isinstance(op, Attention)}

    assert windows("gemma-2-27b") == {0, SEQ_LEN // 2}  # 4,096 of 8,192 positions
    assert windows("phi-3.5-mini") == {2 * SEQ_LEN}  # 262,144: longer than the sequence


def test_ties_are_kept() -> None:
    small = _small(read_model(CASES["llama tied"], name="llama"))
    chunk = build_chunk(small, whole(small), BuildOptions())
    assert "layers.0.embedding.table" in dict(chunk.named_parameters())
    assert not [name for name, _ in chunk.named_parameters() if "logits" in name]


def test_at_most_two_blocks_a_stage_of_two_kinds_and_uneven_stays_uneven() -> None:
    model = load_model("gemma-2-27b")  # sliding and full in turn, 46 blocks
    assert kept_blocks(model, (23, 23)) == ((0, 1, 23, 24), (2, 2))
    assert kept_blocks(model, (12, 12, 12, 10)) == ((0, 1, 12, 13, 24, 25, 36), (2, 2, 2, 1))
    assert kept_blocks(model, (45, 1)) == ((0, 1, 45), (2, 1))
    assert kept_blocks(model, (1,) * 46)[1] == (1,) * 46


def test_dense_and_routed_blocks_both_survive() -> None:
    small = _small(load_model("deepseek-v3"))
    assert {layer.kind for layer in small.layers if layer.role is Role.BLOCK} == {"dense", "moe"}
