"""Libraries that talk are kept quiet, and what they raise becomes one line."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_SENTENCE: Final = 200
ONE_AT_A_TIME: Final = threading.Lock()
"""Held while a library's module is built or run: some of its switches are of the whole process."""


@contextmanager
def quietly() -> Iterator[None]:
    """No warnings and no log lines of the libraries while a module is built or run."""
    loggers = [logging.getLogger(name) for name in ("transformers", "torch", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def one_line(error: BaseException) -> str:
    """What an error says, on one line of at most 200 characters; its type where it says little."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    sentence = f"{kind}: {text}" if isinstance(error, KeyError | AttributeError | TypeError) else text
    return (sentence or kind)[:MAX_SENTENCE]
