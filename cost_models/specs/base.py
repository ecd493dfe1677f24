"""The base of everything a user writes: frozen, strict about unknown keys, finite numbers only."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """An immutable value object; unknown keys, NaN and infinities are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), hide_input_in_errors=True
    )
