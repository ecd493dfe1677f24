"""The page: static files without a build step, and the one call that gives its views their data."""

from api.page.files import router as files_router
from api.page.views import router as views_router

__all__ = ["files_router", "views_router"]
