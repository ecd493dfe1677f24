"""Cursors of lists that are sorted by time: each names the last entry of a page."""

import base64
import binascii

from api.errors import Fault, Problem


def cursor_of(created_at: str, identity: str) -> str:
    """The cursor after an entry."""
    return base64.urlsafe_b64encode(f"{created_at} {identity}".encode("ascii")).decode("ascii").rstrip("=")


def position_of(cursor: str) -> tuple[str, str]:
    """The time and id in a cursor; raises Problem 422."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        created_at, identity = (
            base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").split(" ")
        )
        if not (created_at.isprintable() and identity.isprintable()):
            raise ValueError("control characters")
    except (binascii.Error, ValueError):
        detail = "the cursor is none of this server's; take next_cursor of the page before"
        raise Problem(422, "invalid_request", detail, [Fault("/cursor", "invalid_request", detail)]) from None
    return created_at, identity
