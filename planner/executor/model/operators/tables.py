"""Tensors that depend on positions alone: rotary cosines and sines, attention masks; made once, shared by layers."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.semantics import TRAINED, RopeSettings, yarn_scale
from planner.executor.positions import Run

LOW_FACTOR, HIGH_FACTOR, ORIGINAL_POSITIONS = 1.0, 4.0, 8192.0
"""Llama 3.1's frequency scaling where a config leaves it open."""

BETA_FAST, BETA_SLOW, YARN_POSITIONS = 32.0, 1.0, 4096.0
"""YaRN's ramp where a config leaves it open (Peng et al. 2023, section 3.2)."""


@dataclass(frozen=True, slots=True)
class MaskShape:
    """Which keys a query sees: none after it (causal), none `window` or more away, none outside its `chunk`."""

    causal: bool
    window: int = 0
    chunk: int = 0

    def sees_any(self, queries: Run, keys: Run) -> bool:
        """Whether some query of a run may see some key of another: no is certain, yes is not."""
        (first, length), (start, number) = queries, keys
        last, end = first + length - 1, start + number - 1
        if self.causal and start > last:
            return False
        if self.window and self.causal and first - end >= self.window:
            return False
        if self.window and not self.causal and max(first - end, start - last) > self.window:
            return False
        return not self.chunk or (
            first // self.chunk <= end // self.chunk and start // self.chunk <= last // self.chunk
        )

    def sees_all(self, queries: Run, keys: Run) -> bool:
        """Whether every query of a run sees every key of another, for sure."""
        (first, _), (start, number) = queries, keys
        if self.window or self.chunk:
            return False
        return not self.causal or start + number - 1 <= first

    @property
    def is_plain(self) -> bool:
        """Whether a causal mask (or none) is all there is."""
        return not self.window and not self.chunk

    def cut(self, queries: Run, keys: Run) -> Run:
        """The keys without those after the last query, where none is seen."""
        return (keys[0], min(keys[1], sum(queries) - keys[0])) if self.causal else keys

    def seen(self, row: Tensor, column: Tensor) -> Tensor:
        """True where the query at position `row` sees the key at `column` (broadcast)."""
        seen = column <= row if self.causal else torch.ones_like(row - column, dtype=torch.bool)
        if self.window:
            apart = row - column if self.causal else (row - column).abs() - 1
            seen = seen & (apart < self.window)
        if self.chunk:
            seen = seen & (row // self.chunk == column // self.chunk)
        return seen


@dataclass(frozen=True, slots=True)
class Tables:
    """A cache by length, device and dtype; one for all layers of a chunk. Lengths are the rank's own positions."""

    context: ContextParallel = field(default_factory=ContextParallel)
    _held: dict[tuple[object, ...], tuple[Tensor, ...]] = field(default_factory=dict)

    def rotations(self, settings: RopeSettings, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the rank's positions, each [S / cp, 1, features / 2] in the dtype of `like`."""
        key = (settings, length, like.device, like.dtype)
        if key not in self._held:
            frequencies, factor = inverse_frequencies(settings, length * self.context.size)
            angles = torch.outer(self.context.positions(length).float(), frequencies)
            turned = (angles.cos() * factor, angles.sin() * factor)
            self._held[key] = tuple(each.to(like.device, like.dtype).unsqueeze(1) for each in turned)
        cos, sin = self._held[key]
        return cos, sin

    def mask(self, shape: MaskShape, length: int, device: torch.device) -> Tensor:
        """[S, S], true where a query (row) sees a key (column)."""
        return self.mask_between(shape, (0, length), (0, length), device)

    def mask_between(self, shape: MaskShape, queries: Run, keys: Run, device: torch.device) -> Tensor:
        """[queries, keys] of two runs of positions, true where a query (row) sees a key (column).

        Runs as far apart as others have the same mask, unless it is cut into chunks.
        """
        apart = queries if shape.chunk else (queries[0] - keys[0], queries[1])
        key = (shape, apart, keys if shape.chunk else keys[1], device)
        if key not in self._held:
            row = torch.arange(queries[0], sum(queries), device=device).unsqueeze(1)
            column = torch.arange(keys[0], sum(keys), device=device).unsqueeze(0)
            self._held[key] = (shape.seen(row, column),)
        return self._held[key][0]

    def distances(self, queries: Run, keys: Run, like: Tensor) -> Tensor:
        """[queries, keys]: position of the key minus that of the query, in the dtype of `like`."""
        row = torch.arange(queries[0], sum(queries), device=like.device).unsqueeze(1)
        column = torch.arange(keys[0], sum(keys), device=like.device).unsqueeze(0)
        return (column - row).to(like.dtype)

    def alibi(self, heads: range, num_heads: int, length: int, like: Tensor) -> Tensor:
        """[heads, S, S]: a slope per head times the distance (Press et al. 2022), minus infinity after the query."""
        key = ("alibi", heads, num_heads, length, like.device, like.dtype)
        if key not in self._held:
            slopes = torch.tensor(alibi_slopes(num_heads), dtype=torch.float32)[heads.start : heads.stop]
            row = torch.arange(length).unsqueeze(1)
            bias = (row.T - row).float() * slopes.view(-1, 1, 1)
            bias = bias.masked_fill(row < row.T, float("-inf"))
            self._held[key] = (bias.to(like.device, like.dtype),)
        return self._held[key][0]


def inverse_frequencies(settings: RopeSettings, positions: int = 0) -> tuple[Tensor, float]:
    """Angle per position of each feature pair, and the factor on cosine and sine, for so long a sequence."""
    exponents = torch.arange(0, settings.features, 2, dtype=torch.float32) / settings.features
    plain = 1.0 / _base(settings, positions) ** exponents
    if settings.kind == "linear":
        return plain / settings.number("factor", 1.0), 1.0
    if settings.kind == "llama3":
        return _llama3(plain, settings), 1.0
    if settings.kind == "yarn":
        return _yarn(plain, settings)
    return plain, 1.0


def _base(settings: RopeSettings, positions: int) -> float:
    """The base of the angles; the dynamic kind's grows beyond the trained positions, so that the slowest angle is as
    for those (NTK-aware scaling by the sequence's length, transformers 5.24)."""
    trained = settings.number(TRAINED, 0.0)
    if settings.kind != "dynamic" or not trained or positions <= trained:
        return settings.theta
    factor = settings.number("factor", 1.0)
    stretch = factor * positions / trained - (factor - 1.0)
    return float(settings.theta * stretch ** (settings.features / (settings.features - 2)))


def _llama3(plain: Tensor, settings: RopeSettings) -> Tensor:
    """Long waves are stretched by `factor`, short ones kept, between them a ramp (Llama 3.1's rope scaling)."""
    factor = settings.number("factor", 1.0)
    low, high = (
        settings.number("low_freq_factor", LOW_FACTOR),
        settings.number("high_freq_factor", HIGH_FACTOR),
    )
    original = settings.number("original_max_position_embeddings", ORIGINAL_POSITIONS)
    turns = original * plain / (2.0 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1.0 - smooth) * plain / factor + smooth * plain


def _yarn(plain: Tensor, settings: RopeSettings) -> tuple[Tensor, float]:
    """YaRN (Peng et al. 2023, equations 22 to 25): a ramp over features between extra- and interpolation."""
    factor = settings.number("factor", 1.0)
    original = settings.number("original_max_position_embeddings", YARN_POSITIONS)

    def feature(turns: float) -> float:
        return (
            settings.features
            * math.log(original / (turns * 2.0 * math.pi))
            / (2.0 * math.log(settings.theta))
        )

    low = feature(settings.number("beta_fast", BETA_FAST))
    high = feature(settings.number("beta_slow", BETA_SLOW))
    if settings.number("truncate", 1.0):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, settings.features - 1)
    span = (high - low) or 0.001
    ramp = ((torch.arange(plain.shape[0], dtype=torch.float32) - low) / span).clamp(0.0, 1.0)
    return plain / factor * ramp + plain * (1.0 - ramp), _yarn_factor(settings, factor)


def _yarn_factor(settings: RopeSettings, factor: float) -> float:
    """The attention factor: stated, by the two mscales, or 0.1 ln(factor) + 1."""
    stated = settings.number("attention_factor", 0.0)
    if stated:
        return stated
    whole, each = settings.number("mscale", 0.0), settings.number("mscale_all_dim", 0.0)
    if whole and each:
        return yarn_scale(factor, whole) / yarn_scale(factor, each)
    return yarn_scale(factor, 1.0)


def alibi_slopes(heads: int) -> list[float]:
    """Geometric slopes of Press et al. 2022; odd entries of the next power's fill up other head counts."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    more = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return slopes + more
