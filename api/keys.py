"""Bearer keys: their scopes, who asks, and keys from a file. Keys are kept and compared as SHA-256 only."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from cost_models.errors import BadInput
from cost_models.specs.base import Frozen

Scope = Literal["read", "plan", "run", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Each includes those before it."""

MIN_KEY_CHARACTERS: Final = 16
MAX_KEY_CHARACTERS: Final = 200
MAX_FILE_BYTES: Final = 1024**2
KEY_BYTES: Final = 32
BOOTSTRAP: Final = "bootstrap"


class FileKey(Frozen):
    """A key of the key file."""

    sha256: str
    scope: Scope = "admin"

    @property
    def id(self) -> str:
        """What names the key in logs and as the owner of plans; tells nothing about the key."""
        return f"key_file_{hash_key(self.sha256)[:16]}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `peers` are the ids of all keys of the same name, None where every plan is visible."""

    key_id: str = ""
    name: str = ""
    scope: Scope = "admin"
    peers: frozenset[str] | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the caller's scope includes another."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    def sees(self, key_id: str | None) -> bool:
        """Whether what a key made is visible: keys of one name see the same, admin and keyless servers all."""
        return self.peers is None or key_id in self.peers


KEYLESS: Final = Caller()
"""Everyone on this machine, where the server has no keys."""


def read_key_file(path: Path) -> tuple[FileKey, ...]:
    """The keys of a file, one a line, a scope and a space before it or not (then admin); raises BadInput.

    Blank lines and lines that begin with # are skipped.
    """
    try:
        raw = path.read_bytes()[:MAX_FILE_BYTES]
        lines = [line.strip() for line in raw.decode("ascii").splitlines()]
    except OSError as error:
        raise BadInput(f"key file {path} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise BadInput(f"key file {path} is not ASCII text; write one key a line") from None
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise BadInput(f"key file {path} holds no key; write one a line")
    return tuple(_key_of_line(path, number, line) for number, line in enumerate(lines, start=1))


def _key_of_line(path: Path, number: int, line: str) -> FileKey:
    first, _, rest = line.partition(" ")
    scope = next((scope for scope in SCOPES if scope == first), None)
    key = rest.strip() if scope else line
    if not MIN_KEY_CHARACTERS <= len(key) <= MAX_KEY_CHARACTERS or any(c.isspace() for c in key):
        raise BadInput(
            f"key {number} of {path} has {len(key)} characters or a space; give {MIN_KEY_CHARACTERS} to "
            f"{MAX_KEY_CHARACTERS} without spaces, behind one of {', '.join(SCOPES)} or nothing"
        )
    return FileKey(sha256=hash_key(key), scope=scope or "admin")


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return f"plk_{secrets.token_urlsafe(KEY_BYTES)}"


def hash_key(key: str) -> str:
    """SHA-256 of a key; keys are long and random, so no slow hash is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def find_key(sha256: str, known: tuple[FileKey, ...]) -> FileKey | None:
    """The known key of a hash, comparing all of them in constant time."""
    found = None
    for key in known:
        if hmac.compare_digest(sha256, key.sha256):
            found = key
    return found
