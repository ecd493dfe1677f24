"""Is the process alive, and does it take requests?"""

from fastapi import APIRouter

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz")
async def readyz() -> dict[str, str]:
    """The server takes requests; this version has nothing to wait for once it answers."""
    return {"status": "ready"}
