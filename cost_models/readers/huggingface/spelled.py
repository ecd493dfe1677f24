"""What a config's texts may say, and keys that are one slip away from the one that is missing."""

from collections.abc import Iterable
from typing import Final

ACTIVATIONS: Final = (
    "gelu",
    "gelu_10",
    "gelu_accurate",
    "gelu_fast",
    "gelu_new",
    "gelu_python",
    "gelu_python_tanh",
    "gelu_pytorch_tanh",
    "hardswish",
    "laplace",
    "leaky_relu",
    "linear",
    "mish",
    "prelu",
    "quick_gelu",
    "relu",
    "relu2",
    "relu6",
    "sigmoid",
    "silu",
    "sqrtsoftplus",
    "swish",
    "tanh",
    "xielu",
)
"""Names that transformers' table of functions knows (activations.py, ACT2FN)."""

_ACTIVATION_KEYS: Final = (
    "hidden_act",
    "hidden_activation",
    "activation",
    "activation_function",
    "dense_act_fn",
)
_SHORTEST: Final = 6
"""Letters from which on one slip does not lead from one key to another."""


def allowed_texts(key: str) -> tuple[str, ...]:
    """The values of a key that names one of a closed set; empty for a free text."""
    return ACTIVATIONS if key in _ACTIVATION_KEYS or key.endswith("_hidden_act") else ()


def slip_of(key: str, stated: Iterable[str]) -> str | None:
    """The stated key that is one letter (or letter case, or hyphens) away from an absent one."""
    if len(key) < _SHORTEST:
        return None
    return next((each for each in stated if _one_slip(_plain(each), key)), None)


def _plain(key: str) -> str:
    return key.lower().replace("-", "_")


def _one_slip(given: str, meant: str) -> bool:
    """Equal but for one letter more, less, other, or two neighbours changed over."""
    if abs(len(given) - len(meant)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(given, meant, strict=False)) if a != b), None)
    if start is None:
        return True
    rest, wanted = given[start:], meant[start:]
    other = (rest[1:] == wanted[1:], rest[1:] == wanted, rest == wanted[1:])
    return any(other) or (rest[2:] == wanted[2:] and rest[:2] == wanted[1::-1])
