"""Bearer keys from a file: one a line, kept and compared only as SHA-256."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput

MIN_KEY_CHARACTERS: Final = 16
MAX_FILE_BYTES: Final = 1024**2


def read_key_file(path: Path) -> tuple[str, ...]:
    """Hashes of the keys in a file (blank lines and lines that begin with # are skipped); raises BadInput."""
    try:
        raw = path.read_bytes()[:MAX_FILE_BYTES]
        lines = [line.strip() for line in raw.decode("ascii").splitlines()]
    except OSError as error:
        raise BadInput(f"key file {path} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"key file {path} is not ASCII text; write one key a line") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise BadInput(f"key file {path} holds no key; write one a line")
    for number, key in enumerate(keys, start=1):
        if len(key) < MIN_KEY_CHARACTERS or any(c.isspace() for c in key):
            raise BadInput(
                f"key {number} of {path} has {len(key)} characters or a space; "
                f"give at least {MIN_KEY_CHARACTERS}, without spaces"
            )
    return tuple(hash_key(key) for key in keys)


def hash_key(key: str) -> str:
    """SHA-256 of a key; keys are long and random, so no slow hash is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def is_known(key: str, known_sha256: Iterable[str]) -> bool:
    """Whether a key is one of the known, comparing all of them in constant time."""
    found = hash_key(key)
    return sum(hmac.compare_digest(found, known) for known in known_sha256) > 0
