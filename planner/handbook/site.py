"""A hook of the documentation site: links to the code, which the site does not hold, become plain words."""

import re
from pathlib import PurePosixPath
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page without links that leave the folder of the documents; called by MkDocs for every page."""
    depth = len(PurePosixPath(page.file.src_uri).parts) - 1

    def kept(found: re.Match[str]) -> str:
        leaves = found[2].count("../") > depth
        return found[1] if leaves else found[0]

    return LINK.sub(kept, markdown)
