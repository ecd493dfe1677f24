"""Made-up samples, each drawn from its own generator by seed and index: tokens, masked tokens, images."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from planner.executor.data.base import IGNORED, Source

_INDEX_FACTOR: Final = 1_000_003
MASKED_SHARE: Final = 0.15
"""Share of positions whose token is to be found (Devlin et al. 2018, section 3.1)."""


def _generator(seed: int, index: int) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed((seed * _INDEX_FACTOR + index) % 2**63)
    return generator


@dataclass(frozen=True, slots=True)
class SyntheticTokens(Source):
    """Tokens drawn uniformly; the target of a position is the next token."""

    vocab_size: int
    seq_len: int
    seed: int = 0

    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """`seq_len` tokens and the tokens that follow them."""
        tokens = torch.randint(self.vocab_size, (self.seq_len + 1,), generator=_generator(self.seed, index))
        return tokens[:-1].clone(), tokens[1:].clone()


@dataclass(frozen=True, slots=True)
class MaskedTokens(Source):
    """Another source's tokens with some to be found: the target is IGNORED elsewhere, the input hides them.

    Token `mask_id` stands where a token is hidden; a sample without a hidden token hides its first.
    """

    source: Source
    mask_id: int
    seed: int = 0

    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """The tokens with some hidden, and the hidden ones."""
        tokens, _ = self.source.sample(index)
        hidden = torch.rand(tokens.shape, generator=_generator(self.seed + 1, index)) < MASKED_SHARE
        hidden[0] |= not bool(hidden.any())
        return tokens.masked_fill(hidden, self.mask_id), tokens.masked_fill(~hidden, IGNORED)


@dataclass(frozen=True, slots=True)
class SyntheticImages(Source):
    """Images of normal noise, three channels, and a class for each."""

    image_size: int
    num_classes: int
    seed: int = 0
    num_channels: int = 3

    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """An image (channels, height, width) and its class."""
        generator = _generator(self.seed, index)
        image = torch.randn(self.num_channels, self.image_size, self.image_size, generator=generator)
        return image, torch.randint(self.num_classes, (), generator=generator)
