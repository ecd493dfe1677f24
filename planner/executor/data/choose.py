"""Which source of data an order asks for, and what stands against it."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.errors import BadInput, Violation
from cost_models.operators.loss import ClassLoss
from cost_models.specs.model import ModelSpec
from planner.executor.data.base import Source
from planner.executor.data.synthetic import MaskedTokens, SyntheticImages, SyntheticTokens
from planner.executor.data.text import BYTE_VOCABULARY, load_tokenizer, text_tokens
from planner.executor.data.tokens import TokenWindows, open_tokens
from planner.executor.data.user import UserSamples, load_entry
from planner.executor.request import SYNTHETIC, RunOrder

TOKEN_SUFFIXES: Final = (".npy", ".bin")


def open_source(order: RunOrder) -> Source:
    """The data of an order; raises BadInput where it cannot be read or does not suit the model."""
    options, model, job = order.options, order.situation.model, order.situation.job
    if is_entry(options.data):
        make = load_entry(options.data, "data function")
        vocabulary = None if model.is_vision or options.factory else model.vocab_size
        return UserSamples(make, job.seq_len, vocabulary, is_vision=model.is_vision, epochs=options.epochs)
    if model.is_vision:
        return SyntheticImages(job.image_size, num_classes(model), options.seed)
    plain = _tokens(order)
    if model.semantics.get("causal", True):
        return plain
    return MaskedTokens(plain, mask_id=model.vocab_size - 1, seed=options.seed)


def data_violations(order: RunOrder) -> tuple[Violation, ...]:
    """What can be told about the data before anything is launched."""
    data, model, epochs = order.options.data, order.situation.model, order.options.epochs
    is_text = not is_entry(data) and data != SYNTHETIC and Path(data).suffix not in TOKEN_SUFFIXES
    if order.options.tokenizer and not is_text:
        detail = f"a tokenizer is for a text file, and the data is {data[:200]!r}"
        return (Violation("data", detail, ("--data FILE.txt", "no --tokenizer")),)
    if data == SYNTHETIC and epochs is not None:
        detail = f"synthetic data has no end, and {epochs:,} epochs of it are asked for"
        return (Violation("data", detail, ("no --epochs", "--data FILE")),)
    if data == SYNTHETIC or is_entry(data):
        return ()
    return _file_violations(data, model, is_plain=is_text and not order.options.tokenizer)


def _file_violations(data: str, model: ModelSpec, *, is_plain: bool) -> tuple[Violation, ...]:
    """What stands against a file; `is_plain`: text that is read as bytes."""
    if model.is_vision:
        detail = f"data {data[:200]!r} is a file of tokens or text, and {model.name} is a vision model"
        return (Violation("data", detail, ("--data synthetic", "--data package.module:function")),)
    if not Path(data).is_file():
        detail = f"data {data[:200]!r} is no file"
        return (Violation("data", detail, ("a file", "--data synthetic", "--data package.module:function")),)
    if is_plain and model.vocab_size < BYTE_VOCABULARY:
        detail = f"text without a tokenizer is read as bytes, and {model.name} has {model.vocab_size} tokens"
        return (
            Violation("data", detail, (f"a vocabulary of {BYTE_VOCABULARY} or more", "--tokenizer FILE")),
        )
    return ()


def check_file(order: RunOrder) -> None:
    """Raise BadInput where a file of data is not what it says, or holds less than one sequence."""
    options = order.options
    if options.data == SYNTHETIC or is_entry(options.data):
        return
    if options.tokenizer:
        load_tokenizer(options.tokenizer)
        return
    TokenWindows(_file_tokens(order), order.situation.job.seq_len)


def is_entry(data: str) -> bool:
    """Whether data names a function, as in `package.module:function`."""
    module, colon, name = data.partition(":")
    parts = [*module.split("."), name]
    return bool(colon) and all(part.isidentifier() for part in parts)


def num_classes(model: ModelSpec) -> int:
    """Classes that a vision model tells apart."""
    for kind in model.kinds.values():
        for operator in kind.operators:
            if isinstance(operator, ClassLoss):
                return operator.classes
    raise BadInput(
        f"{model.name} has no class loss, so no targets can be made up; give --data package.module:function"
    )


def _tokens(order: RunOrder) -> Source:
    options, model, job = order.options, order.situation.model, order.situation.job
    if options.data == SYNTHETIC:
        return SyntheticTokens(model.vocab_size, job.seq_len, options.seed)
    windows = TokenWindows(_file_tokens(order), job.seq_len, options.seed, options.epochs)
    smallest, largest = windows.token_range()
    if smallest < 0 or largest >= model.vocab_size:
        strange = smallest if smallest < 0 else largest
        raise BadInput(
            f"data {options.data[:200]!r} holds token {strange:,}, but {model.name} has {model.vocab_size:,}; "
            "take the model's own tokenizer"
        )
    return windows


def _file_tokens(order: RunOrder) -> NDArray[np.generic]:
    path = Path(order.options.data)
    if path.suffix in TOKEN_SUFFIXES:
        return open_tokens(path, order.options.data_dtype)
    return text_tokens(path, order.options.tokenizer)
