"""What a ModelSpec says about how its operators compute, beside their sizes, as typed values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.operators import Attention, Rope
from cost_models.specs.model import LayerKind, ModelSpec

Scalar = str | int | float | bool | None

DEFAULT_NORM_EPS = 1e-5
DEFAULT_THETA = 10_000.0

FAMILY_VALUES: Mapping[str, Mapping[str, Scalar]] = {
    "ernie4_5": {"rope_interleaved": True},
    "helium": {"rope_interleaved": True},
    "minimax_m2": {"router_normalise_top_k": True},
}
"""What a family's class in transformers 5.24 does and its config does not say."""

TRAINED = "trained_positions"
"""Name of the longest trained sequence among the numbers of a dynamic scaling."""

ROPE_PREFIXES = ("rope_scaling.", "rope_parameters.")


@dataclass(frozen=True, slots=True)
class RopeSettings:
    """Rotary embedding (Su et al. 2021): rotated features a head, base, pairing, and how frequencies are stretched."""

    features: int
    theta: float
    interleaved: bool = False
    kind: str = "default"
    scaling: tuple[tuple[str, float], ...] = ()

    def number(self, key: str, default: float) -> float:
        """A value of the scaling's settings."""
        return dict(self.scaling).get(key, default)


@dataclass(frozen=True, slots=True)
class Semantics:
    """Values of one model; those that differ by layer kind are asked for with the kind's name."""

    values: Mapping[str, Scalar]
    hidden_size: int
    positions: int = 0
    """Longest sequence that the model was trained for; 0: not stated."""

    def number(self, key: str, default: float) -> float:
        """A numeric value, or the default where it is absent or null."""
        value = self.values.get(key)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.values.get(key)
        return value if isinstance(value, bool) else default

    @property
    def norm_eps(self) -> float:
        """Epsilon of every normalisation."""
        return self.number("norm_eps", DEFAULT_NORM_EPS)

    @property
    def norm_offset(self) -> float:
        """What is added to a norm's weight (Gemma stores w - 1)."""
        return self.number("norm_weight_offset", 0.0)

    @property
    def embedding_scale(self) -> float:
        """Factor on the embedded tokens."""
        if self.values.get("embedding_scale") == "sqrt(hidden_size)":
            return math.sqrt(self.hidden_size)
        return self.number("embedding_scale", 1.0) * self.number("embedding_multiplier", 1.0)

    def attention_scale(self, qk_dim: int) -> float:
        """Factor on the scores."""
        if not self.flag("attention_scaled", True):
            return 1.0
        stated = self.number("attention_multiplier", 0.0)
        return stated or self.number("query_pre_attn_scalar", float(qk_dim)) ** -0.5

    def latent_scale(self) -> float:
        """Factor on latent attention's scores where YaRN stretches positions (DeepSeek-V3's released model)."""
        settings = self.rope("", 0)
        each = settings.number("mscale_all_dim", 0.0)
        if settings.kind == "default" or not each:
            return 1.0
        return yarn_scale(settings.number("factor", 1.0), each) ** 2

    def rope(self, kind: str, features: int) -> RopeSettings:
        """Settings of the rotary embedding of one layer kind, rotating `features` of each head."""
        found = self._rope_values(kind)
        theta = self.number("rope_theta", DEFAULT_THETA)
        stated = found.get("rope_theta")
        theta = float(stated) if isinstance(stated, int | float) else theta
        stretched = str(found.get("rope_type") or found.get("type") or "default")
        if kind.endswith("sliding") and "rope_theta_sliding" in self.values:
            theta, stretched, found = self.number("rope_theta_sliding", theta), "default", {}
        numbers = {key: float(value) for key, value in found.items() if isinstance(value, int | float)}
        if stretched == "dynamic":
            numbers[TRAINED] = float(self.positions)
        scaling = tuple(sorted(numbers.items()))
        return RopeSettings(features, theta, self.flag("rope_interleaved"), stretched, scaling)

    def _rope_values(self, kind: str) -> dict[str, Scalar]:
        """Values under rope_scaling or rope_parameters; those of one kind of attention win over the common ones."""
        own = "sliding_attention." if kind.endswith("sliding") else "full_attention."
        common: dict[str, Scalar] = {}
        special: dict[str, Scalar] = {}
        for key, value in self.values.items():
            prefix = next((each for each in ROPE_PREFIXES if key.startswith(each)), None)
            if prefix is None:
                continue
            rest = key.removeprefix(prefix)
            if rest.startswith(own):
                special[rest.removeprefix(own)] = value
            elif "." not in rest:
                common[rest] = value
        return common | special


def yarn_scale(factor: float, scale: float) -> float:
    """0.1 x scale x ln(factor) + 1 where positions are stretched at all (Peng et al. 2023, equation 22)."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def semantics_of(model: ModelSpec) -> Semantics:
    """The model's semantics."""
    return Semantics(
        {**FAMILY_VALUES.get(model.family, {}), **model.semantics}, model.hidden_size, model.max_seq_len
    )


def rotated_features(kind: LayerKind) -> int:
    """Features of one head that the kind's rotary embedding turns; 0 where it has none."""
    ropes = [op for op in kind.operators if isinstance(op, Rope)]
    attentions = [op for op in kind.operators if isinstance(op, Attention)]
    if not ropes or not attentions:
        return 0
    return ropes[0].width // (attentions[0].heads + attentions[0].kv_heads)
