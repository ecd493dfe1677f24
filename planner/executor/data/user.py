"""A user's own samples: `package.module:function` returns an iterable of token rows or (input, target) pairs."""

import itertools
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from cost_models.errors import BadInput
from planner.executor.data.base import IGNORED, Source
from planner.executor.failures import DataExhausted, exhausted_text


def load_entry(entry: str, what: str) -> Any:
    """The function that `package.module:function` names; raises BadInput where there is none."""
    module_name, _, name = entry.partition(":")
    try:
        found = getattr(import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(
            f"{what} {entry[:200]!r} cannot be loaded ({error}); give package.module:function"
        ) from None
    if not callable(found):
        raise BadInput(f"{what} {entry[:200]!r} is no function; give package.module:function")
    return found


class UserSamples(Source):
    """Samples of an iterable by their place in it; it is read from the start, once, in order.

    To go on at sample N its first N samples are read and dropped. An iterable that ends is begun again, `epochs` times
    in all.
    """

    def __init__(
        self,
        make: Any,
        seq_len: int,
        vocabulary: int | None = None,
        *,
        is_vision: bool = False,
        epochs: int | None = None,
    ) -> None:
        """`vocabulary`: tokens outside it are refused; None where nothing is known of them."""
        self._make = make
        self._epochs = epochs
        self._vocabulary = vocabulary
        self._seq_len = seq_len
        self._is_vision = is_vision
        self._iterator = iter(self._samples())
        self._next = 0

    def sample(self, index: int) -> tuple[Tensor, Tensor]:
        """The sample of this index; indices may only rise."""
        if index < self._next:
            raise BadInput(f"sample {index} was already read (at {self._next}); an iterable is read in order")
        while self._next < index:
            next(self._iterator)
            self._next += 1
        self._next += 1
        inputs, target = self._pair(next(self._iterator))
        if self._vocabulary is not None:
            self._check_tokens(index, inputs, target)
        return inputs, target

    def _check_tokens(self, index: int, inputs: Tensor, target: Tensor) -> None:
        if inputs.shape != (self._seq_len,) or target.shape != inputs.shape:
            raise BadInput(
                f"sample {index} has inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(target.shape)}; "
                f"give {self._seq_len:,} of each"
            )
        counted = torch.cat((inputs, target[target != IGNORED]))
        smallest, largest = int(counted.min()), int(counted.max())
        if smallest < 0 or largest >= (self._vocabulary or 0):
            strange = smallest if smallest < 0 else largest
            raise BadInput(
                f"sample {index} holds token {strange:,}, but the model has {self._vocabulary:,}; "
                "take the model's own tokenizer"
            )

    def _samples(self) -> Iterator[Any]:
        count = 0
        for epoch in itertools.count(1):
            iterable: Iterable[Any] = self._make()
            if not isinstance(iterable, Iterable) and not hasattr(iterable, "__getitem__"):
                raise BadInput(
                    f"the data function gave {type(iterable).__name__}; give an iterable of samples"
                )
            is_empty = True
            for sample in iterable:
                is_empty = False
                count += 1
                yield sample
            if is_empty:
                raise BadInput("the data function gave no sample; give an iterable that is not empty")
            if epoch == self._epochs:
                raise DataExhausted(exhausted_text("the data function's samples", count, epoch))

    def _pair(self, sample: Any) -> tuple[Tensor, Tensor]:
        """Input and target: a pair as given, or a row of tokens whose targets are the next ones."""
        if isinstance(sample, tuple | list) and len(sample) == 2 and not isinstance(sample[0], int):
            first, second = sample
            inputs = torch.as_tensor(first).float() if self._is_vision else _whole(first)
            return inputs, _whole(second)
        tokens = _whole(sample)
        if tokens.numel() != self._seq_len + 1:
            raise BadInput(
                f"a sample holds {tokens.numel():,} tokens; give sequence + 1 = {self._seq_len + 1:,} tokens, "
                "or a pair (input, target)"
            )
        return tokens[:-1].clone(), tokens[1:].clone()


def _whole(values: Any) -> Tensor:
    """Whole numbers as a tensor; raises BadInput for anything else, which would be cut to whole ones silently."""
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(f"a sample of the data function is no row of numbers ({what}); give tokens") from None
    if found.is_floating_point() or found.is_complex():
        raise BadInput(f"a sample of the data function holds {found.dtype}; give whole numbers")
    return found.long()
