"""Data that cannot be trained on is refused in words: files before launch, samples when they are read."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cost_models.errors import BadInput
from planner.executor.data import check_file, open_source
from planner.executor.refuse import check_run
from tests.planner.executor.orders import tiny_order

BYTES = {"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("empty.txt", b"", "cannot be read"),
        ("short.txt", b"abc", "3 tokens, a sequence needs 17"),
        ("broken.npy", b"\x93NUMPYxx", "cannot be read"),
        ("odd.bin", b"\x00" * 101, "cannot be read"),
    ],
)
def test_files_are_refused_before_launch(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=what):
        check_run(tiny_order(data=str(tmp_path / name), config=BYTES), 0)


def test_a_file_is_not_read_to_its_end_before_launch(tmp_path: Path) -> None:
    np.save(
        tmp_path / "a.npy", np.full(100, 5000, dtype=np.uint16)
    )  # beyond the vocabulary: told by the ranks
    check_file(tiny_order(data=str(tmp_path / "a.npy")))


def test_a_missing_tokenizer_is_refused_before_launch(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(BadInput, match=r"tokenizer 'missing\.json' cannot be read"):
        check_file(tiny_order(data=str(tmp_path / "a.txt"), tokenizer="missing.json"))


def test_a_negative_token_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full(100, -3))
    with pytest.raises(BadInput, match="token -3"):
        open_source(tiny_order(data=str(tmp_path / "a.npy")))


def beyond() -> Iterator[list[int]]:
    """The tiny model has 128 tokens."""
    yield [128] * 17


def fractions() -> Iterator[list[float]]:
    """Would be cut to zeros."""
    yield [0.5] * 17


def words() -> Iterator[str]:
    """Text instead of its tokens."""
    yield "once upon a time"


def long_pairs() -> Iterator[tuple[list[int], list[int]]]:
    """A sequence of 18 instead of 16."""
    yield [1] * 18, [1] * 18


def one_number() -> int:
    """Not a collection at all."""
    return 5


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (beyond, "token 128, but the model has 128"),
        (fractions, "give whole numbers"),
        (words, "no row of numbers"),
        (long_pairs, "give 16 of each"),
        (one_number, "gave int; give an iterable"),
    ],
)
def test_samples_are_refused_in_words(function: Callable[[], object], what: str) -> None:
    source = open_source(tiny_order(data=f"{__name__}:{function.__name__}"))
    with pytest.raises(BadInput, match=what):
        source.sample(0)
