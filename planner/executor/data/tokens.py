"""Tokens of a file cut into windows of one sequence each, in an order that the seed shuffles anew every epoch."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cost_models.errors import BadInput
from planner.executor.data.base import Source
from planner.executor.failures import DataExhausted, exhausted_text

UNSIGNED = ("uint8", "uint16", "uint32")


class TokenWindows(Source):
    """Windows of `seq_len` tokens and the tokens that follow; nothing but the windows asked for is read."""

    def __init__(
        self, tokens: NDArray[np.generic], seq_len: int, seed: int = 0, epochs: int | None = None
    ) -> None:
        """`epochs`: how often the windows may be gone through; None: without end."""
        self._tokens = tokens
        self._epochs = epochs
        self._seq_len = seq_len
        self._seed = seed
        self.num_windows = (len(tokens) - 1) // seq_len
        if self.num_windows < 1:
            raise BadInput(
                f"data holds {len(tokens):,} tokens, a sequence needs {seq_len + 1:,}; give more data or a shorter "
                "sequence"
            )

    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """The window of this index: each epoch goes through all of them once."""
        epoch, place = divmod(index, self.num_windows)
        if self._epochs is not None and epoch >= self._epochs:
            count = self.num_windows * self._epochs
            raise DataExhausted(exhausted_text("the samples of the data", count, self._epochs))
        start = int(_order(self._seed, epoch, self.num_windows)[place]) * self._seq_len
        window = np.asarray(self._tokens[start : start + self._seq_len + 1]).astype(np.int64)
        tokens = torch.from_numpy(window)
        return tokens[:-1].clone(), tokens[1:].clone()

    def token_range(self) -> tuple[int, int]:
        """Smallest and largest token number in the file."""
        return int(self._tokens.min()), int(self._tokens.max())


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """The windows of one epoch in their shuffled order."""
    return np.random.default_rng((seed, epoch)).permutation(count)


def open_tokens(path: Path, dtype: str) -> NDArray[np.generic]:
    """A token file mapped into memory: `.npy` says its type itself, `.bin` is raw little-endian `dtype`."""
    try:
        tokens: NDArray[np.generic]
        if path.suffix == ".npy":
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            tokens = np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r")
    except (OSError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(f"token file {str(path)[:200]!r} cannot be read ({what}); check it") from None
    if tokens.ndim != 1 or tokens.dtype.kind not in "ui":
        raise BadInput(
            f"token file {str(path)[:200]!r} holds {tokens.dtype} of shape {tokens.shape}; "
            "give one row of whole numbers"
        )
    return tokens
