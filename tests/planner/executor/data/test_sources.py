"""Sources give the same sample for an index anywhere; samplers divide a global batch; a run can go on later."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cost_models.errors import BadInput
from planner.executor.data import Sampler, data_violations, open_source
from planner.executor.data.base import IGNORED, Batch
from planner.executor.data.synthetic import MaskedTokens, SyntheticImages, SyntheticTokens
from planner.executor.data.tokens import TokenWindows
from tests.planner.executor.orders import tiny_order

BATCH = 8


def inputs_of(source: SyntheticTokens, parts: int, count: int, first: int = 0) -> torch.Tensor:
    """The inputs of one global batch, put together from the micro-batches of all data-parallel ranks."""
    found = []
    for rank in range(parts):
        sampler = Sampler(source, BATCH, (rank, parts), first)
        found += [batch.inputs for batch in sampler.micro_batches(count)]
    return torch.cat(found)


@pytest.mark.parametrize(("parts", "count"), [(1, 1), (1, 8), (2, 2), (4, 1), (8, 1)])
def test_any_layout_sees_the_same_global_batch(parts: int, count: int) -> None:
    source = SyntheticTokens(vocab_size=50, seq_len=6, seed=3)
    assert torch.equal(inputs_of(source, parts, count), inputs_of(source, 1, 1))


def test_a_run_goes_on_where_it_stopped() -> None:
    source = SyntheticTokens(vocab_size=50, seq_len=6)
    whole = Sampler(source, BATCH, (1, 2))
    steps = [whole.micro_batches(2) for _ in range(3)]
    stopped = Sampler(source, BATCH, (1, 2))
    stopped.micro_batches(2)
    again = Sampler(source, BATCH, (1, 2), **stopped.state())
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(again.micro_batches(2), steps[1], strict=True))


def test_targets_are_the_next_tokens() -> None:
    inputs, targets = SyntheticTokens(vocab_size=50, seq_len=6).sample(2)
    assert torch.equal(inputs[1:], targets[:-1])


def test_masked_tokens_ask_for_what_they_hide() -> None:
    plain = SyntheticTokens(vocab_size=50, seq_len=40)
    masked = MaskedTokens(plain, mask_id=49)
    for index in range(20):
        tokens, _ = plain.sample(index)
        inputs, targets = masked.sample(index)
        hidden = targets != IGNORED
        assert hidden.any()
        assert torch.equal(targets[hidden], tokens[hidden])
        assert (inputs[hidden] == 49).all()
        assert torch.equal(inputs[~hidden], tokens[~hidden])


def test_valid_targets_are_counted() -> None:
    assert Batch(torch.zeros(1, 3), torch.tensor([[1, IGNORED, 2]])).num_valid() == 2


def test_images_and_classes() -> None:
    image, label = SyntheticImages(image_size=8, num_classes=5).sample(4)
    assert image.shape == (3, 8, 8)
    assert 0 <= int(label) < 5


def test_windows_of_an_epoch_are_each_seen_once() -> None:
    # 31 tokens, windows of 5 and the one that follows: (31 - 1) // 5 = 6 windows.
    source = TokenWindows(np.arange(31), seq_len=5, seed=1)
    first = [int(source.sample(index)[0][0]) for index in range(6)]
    second = [int(source.sample(index)[0][0]) for index in range(6, 12)]
    assert sorted(first) == sorted(second) == [0, 5, 10, 15, 20, 25]
    assert first != second


def test_token_files(tmp_path: Path) -> None:
    tokens = np.arange(100, dtype=np.uint16) % 128
    np.save(tmp_path / "a.npy", tokens)
    tokens.astype("<u4").tofile(tmp_path / "b.bin")
    first = open_source(tiny_order(data=str(tmp_path / "a.npy")))
    second = open_source(tiny_order(data=str(tmp_path / "b.bin"), data_dtype="uint32"))
    assert torch.equal(first.sample(3)[0], second.sample(3)[0])


def test_text_is_read_as_bytes(tmp_path: Path) -> None:
    config = {"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4}
    path = tmp_path / "a.txt"
    path.write_text("abcdefghijklmnopqrstuvwxyz" * 4, encoding="ascii")
    inputs, targets = open_source(tiny_order(data=str(path), config=config)).sample(0)
    assert torch.equal(inputs[1:], targets[:-1])
    assert int(inputs.min()) >= ord("a")


def test_text_with_a_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    words = [f"w{number}" for number in range(40)]
    vocabulary = {word: number for number, word in enumerate(words)} | {"[UNK]": 40}
    spec = {
        "version": "1.0",
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    (tmp_path / "a.txt").write_text(" ".join(words))
    source = open_source(tiny_order(data=str(tmp_path / "a.txt"), tokenizer=str(tmp_path / "tokenizer.json")))
    # 40 tokens, sequence 16: windows start at token 0 or 16.
    assert int(source.sample(0)[0][0]) in (0, 16)


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full(100, 128, dtype=np.uint16))
    with pytest.raises(BadInput, match="token 128"):
        open_source(tiny_order(data=str(tmp_path / "a.npy")))


def test_too_short_a_file_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(16, dtype=np.uint16))
    with pytest.raises(BadInput, match="16 tokens, a sequence needs 17"):
        open_source(tiny_order(data=str(tmp_path / "a.npy")))


def some_samples() -> Iterator[list[int]]:
    """Three samples of 17 tokens."""
    for start in range(3):
        yield [start] * 17


def test_a_users_iterable_is_begun_again_when_it_ends() -> None:
    source = open_source(tiny_order(data=f"{__name__}:some_samples"))
    assert [int(source.sample(index)[0][0]) for index in (0, 2, 3, 7)] == [0, 2, 0, 1]


@pytest.mark.parametrize("data", ["no_such_module:f", f"{__name__}:no_such_function"])
def test_a_function_that_is_not_there_is_refused(data: str) -> None:
    with pytest.raises(BadInput, match="cannot be loaded"):
        open_source(tiny_order(data=data))


def test_a_missing_file_is_refused_before_launch() -> None:
    (violation,) = data_violations(tiny_order(data="missing.npy"))
    assert violation.rule == "data"


def test_a_tokenizer_is_for_text_alone() -> None:
    (violation,) = data_violations(tiny_order(tokenizer="tokenizer.json"))
    assert "a tokenizer is for a text file" in violation.detail
