"""A report as one HTML file: data, drawing modules and the plotting library inside it, nothing asked from anywhere."""

import html
import json
from base64 import b64encode
from hashlib import sha256
from typing import Any, Final

from cost_models.errors import BadInput
from planner.report.bundle import asset, bundle
from planner.report.content import Reported

MAX_BYTES: Final = 6_000_000
ATTEMPTS: Final = ((60_000, 4_000, 12), (24_000, 2_000, 6), (8_000, 800, 3), (2_000, 200, 1))
"""Operations of the first timeline, of the others, and layouts with views: the first that is small enough is taken."""
ECHARTS: Final = "vendor/echarts.common.min.js"

TEMPLATE: Final = """<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the plan</a>
<header class="top"><span class="brand">Parallelism planner</span>
<nav class="nav" aria-label="Views" id="nav"></nav><span id="tools" class="row"></span></header>
<div class="layout report"><main class="main" id="main" tabindex="-1">
<noscript><p class="card">The views need JavaScript; the same as text: --report out.md.</p></noscript></main></div>
<script type="application/json" id="data">{data}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""


def html_report(reported: Reported) -> str:
    """The file's text, at most MAX_BYTES long; long timelines lose their end before anything else does."""
    version = json.loads(asset("vendor/VENDOR.json"))["echarts.common.min.js"]["version"]
    for attempt in ATTEMPTS:
        text = _page(reported.data(*attempt) | {"echarts": version})
        if len(text.encode()) <= MAX_BYTES:
            return text
    size = len(text.encode()) / 1e6
    raise BadInput(f"the report would take {size:.1f} MB of {MAX_BYTES / 1e6:g}; plan with a smaller --top-k")


def _page(data: dict[str, Any]) -> str:
    style, library, script = asset("style.css"), asset(ECHARTS), bundle("report")
    library = library.replace("</script", "<\\/script")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    question = data["question"]
    title = f"{question['model']} on {question['hardware']}"
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return TEMPLATE.format(
        policy=policy, title=html.escape(title), style=style, data=text, library=library, script=script
    )


def _hash(text: str) -> str:
    """What a content-security policy allows this very text by."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
