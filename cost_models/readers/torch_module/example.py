"""An example batch of any module -> runs: at several lengths where it holds tokens, once for images and the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cost_models.errors import InvalidModel
from cost_models.readers.torch_module.costs import Traced, summed
from cost_models.readers.torch_module.trace import Prepared, Run, run, timed

if TYPE_CHECKING:
    import torch


def trace_batch(prepared: Prepared, example: Any) -> tuple[Traced, str]:
    """Costs for an example batch, and a note on how it was taken."""
    import torch

    args, named = _called_with(_mapped(example, lambda tensor: tensor.to("meta")))
    first = next(_tensors((*args, *named.values())), None)
    if first is None or not first.dim():
        raise InvalidModel("the example batch holds no tensor; give a tensor, a tuple or a dict of tensors")
    if torch.bfloat16 not in {each.dtype for each in _tensors((*args, *named.values()))}:
        prepared.model.to(torch.float32)
    batch = int(first.shape[0])
    if first.dim() >= 4:
        found = _once(prepared, args, named, batch)
        return replace(found, side=int(max(first.shape[-2:]))), f"images of {tuple(first.shape[1:])}"
    if first.dim() == 2 and not first.dtype.is_floating_point and first.shape[1] > 1:
        return _at_lengths(prepared, args, named, batch, int(first.shape[1]))
    return (
        _once(prepared, args, named, batch),
        f"one position a sample of shape {tuple(first.shape[1:])}: give a sequence length of 1",
    )


def _once(prepared: Prepared, args: tuple[Any, ...], named: Mapping[str, Any], batch: int) -> Traced:
    found, reason, _ = timed(lambda: run(prepared, args, named, 1, batch))
    return Traced(reason=reason) if found is None else summed([found], scale=1.0)


def _at_lengths(
    prepared: Prepared, args: tuple[Any, ...], named: Mapping[str, Any], batch: int, length: int
) -> tuple[Traced, str]:
    """Runs at quarters of the length; where the module takes its own length only, in proportion to it."""
    runs: list[Run] = []
    for short in sorted({max(length * quarter // 4, 1) for quarter in (1, 2, 3, 4)}):
        cut = _mapped((args, named), _cut(length, short))
        found, reason, _ = timed(lambda c=cut, n=short: run(prepared, c[0], c[1], n, batch))  # type: ignore[misc]
        if found is not None:
            runs.append(found)
    if not runs or runs[-1].length != length:
        return Traced(reason=reason), ""
    if len(runs) < 4 or any(each.calls != runs[0].calls for each in runs):
        return summed([runs[-1]], scale=float(length)), f"tokens of {length} positions, in proportion to them"
    return summed(runs, scale=1.0), f"tokens, run at up to {length} positions"


def _cut(length: int, short: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:, :short] if tensor.dim() > 1 and tensor.shape[1] == length else tensor

    return cut


def _called_with(example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), example
    if isinstance(example, tuple | list):
        return tuple(example), {}
    return (example,), {}


def _mapped(values: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    import torch

    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, Mapping):
        return {key: _mapped(each, change) for key, each in values.items()}
    if isinstance(values, tuple | list):
        return tuple(_mapped(each, change) for each in values)
    return values


def _tensors(values: Any) -> Any:
    import torch

    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, Mapping):
            yield from _tensors(each.values())
        elif isinstance(each, tuple | list):
            yield from _tensors(each)
