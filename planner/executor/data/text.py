"""A text file as tokens: of a `tokenizer.json` where one is given, else its bytes."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cost_models.errors import BadInput

BYTE_VOCABULARY: Final = 256
_CHUNK: Final = 1 << 20


def text_tokens(path: Path, tokenizer: str) -> NDArray[np.generic]:
    """Tokens of a text file; raises BadInput where file, tokenizer or the tokenizers library is missing."""
    if not tokenizer:
        return _bytes(path)
    encoder = load_tokenizer(tokenizer)
    parts: list[NDArray[np.uint32]] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        while chunk := lines.readlines(_CHUNK):
            encoded = encoder.encode("".join(chunk), add_special_tokens=False)
            parts.append(np.asarray(encoded.ids, dtype=np.uint32))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint32)


def load_tokenizer(tokenizer: str) -> Any:
    """The tokenizer of a `tokenizer.json`; raises BadInput where the file or the tokenizers library is missing."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadInput(
            "--tokenizer needs the tokenizers library, which is not installed; install it, or leave --tokenizer out to "
            "train on bytes"
        ) from None
    try:
        return Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare Exception for files it cannot read
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"tokenizer {tokenizer[:200]!r} cannot be read ({what}); give a tokenizer.json"
        ) from None


def _bytes(path: Path) -> NDArray[np.generic]:
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"text file {str(path)[:200]!r} cannot be read ({what}); give a file with text"
        ) from None
