"""What is built and how: the segment of layers and the knobs of one rank."""

from dataclasses import dataclass, field
from typing import Final

import torch

from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.expert_parallel import ExpertParallel
from planner.executor.model.tensor_parallel import TensorParallel

DROPOUT_PROBABILITY = 0.1
"""Probability of every dropout of GPT-2, BERT and their kin (their configuration classes in transformers 5.24)."""

DRAWN: Final = "drawn"
GIVEN: Final = "given"
PROMISED: Final = "promised"


@dataclass(frozen=True, slots=True)
class ChunkCut:
    """A contiguous segment of blocks [start, stop) of the model, as `stages` counts them.

    `first` adds everything before the blocks (embedding, connectors), `last` everything after them.
    """

    first: bool
    last: bool
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How one rank builds its chunk. The first `full_layers` blocks of the chunk are recomputed in full, the operators
    of `scopes` in the others; weights are a function of `seed` and their names alone."""

    tensor_parallel: TensorParallel = field(default_factory=TensorParallel)
    seed: int = 0
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    full_layers: int = 0
    scopes: tuple[str, ...] = ()
    attention: str = "flash"
    dropout: bool = False
    dropout_probability: float = DROPOUT_PROBABILITY
    fused_cross_entropy: bool = False
    cross_entropy_chunks: int = 1
    train_mtp: bool = False
    mtp_weight: float = 0.0
    """Share of the mean loss of the multi-token-prediction layers in the loss."""
    values: str = DRAWN
    """Where a parameter's first values come from: drawn from the seed, or given later to storage that is there (GIVEN)
    or comes later too (PROMISED: parameters are on the meta device until they are sharded)."""
    context: ContextParallel = field(default_factory=ContextParallel)
    experts: ExpertParallel = field(default_factory=ExpertParallel)
