"""Static files of the page, read from this package and from the report, whose drawing modules it shares.

They hold no secret, so they are answered without a key; everything that the page shows it asks for with one.
"""

from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path
from fastapi.responses import Response

from api.errors import Problem

router = APIRouter(tags=["page"], include_in_schema=False)

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
Seen = Annotated[str | None, Header(max_length=2000, alias="if-none-match")]
Name = Annotated[str, Path(max_length=60, pattern=r"^[a-z0-9_]+(\.[a-z0-9]+)+$")]


def folders() -> tuple[Traversable, ...]:
    """Where files of the page stand: its own, the drawing modules, and the libraries beside them."""
    assets = files("planner.report") / "assets"
    return (files("api.page") / "static", assets, assets / "vendor")


@router.get("/")
async def read_start(if_none_match: Seen = None) -> Response:
    """The page."""
    return answer_file("index.html", if_none_match)


@router.get("/page/{name}")
async def read_file(name: Name, if_none_match: Seen = None) -> Response:
    """One of its files; all stand side by side, so no path leaves the folders."""
    return answer_file(name, if_none_match)


def answer_file(name: str, if_none_match: str | None) -> Response:
    """A file with its hash as ETag; raises Problem 404."""
    found = _read(name)
    if found is None:
        raise Problem(404, "not_found", "the page has no such file")
    content, tag, kind = found
    headers = HEADERS | {"ETag": tag}
    if if_none_match is not None and tag in if_none_match:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)


@lru_cache(maxsize=64)
def _read(name: str) -> tuple[bytes, str, str] | None:
    """Content, ETag and media type of a file of the package, which does not change while a server runs."""
    kind = TYPES.get(name.rpartition(".")[2])
    found = next((folder / name for folder in folders() if (folder / name).is_file()), None)
    if kind is None or found is None:
        return None
    content = found.read_bytes()
    return content, f'"{sha256(content).hexdigest()[:32]}"', kind
