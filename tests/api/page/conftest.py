"""A server with its page, and a browser that looks at it."""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from api.settings import Settings

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WAIT_MS = 60_000


@pytest.fixture(scope="session")
def serve_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A context with the address of a server that really searches; settings as keywords."""
    import uvicorn

    @contextmanager
    def serving(**settings: Any) -> Iterator[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        given = {"data_dir": tmp_path_factory.mktemp("data"), "port": port, **settings}
        server = uvicorn.Server(
            uvicorn.Config(create_app(Settings(**given)), port=port, log_config=None, access_log=False)
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60.0
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join(timeout=30.0)

    return serving


@pytest.fixture(scope="session")
def url(serve_page: Callable[..., Any]) -> Iterator[str]:
    """The address of one server for all tests that look at the page."""
    with serve_page() as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a screen."""
    if not Path(CHROMIUM).is_file():
        pytest.skip("Chromium is not installed (Debian: chromium), or name it by CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield made
        made.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page whose console must stay silent; `quiet=False` where an error answer is what is tested."""
    opened: list[tuple[Any, list[str], bool]] = []

    def opening(address: str, *, quiet: bool = True, **context: Any) -> Any:
        page = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **context}).new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text) if message.type in LOUD else None)
        page.on("pageerror", lambda error: said.append(f"uncaught: {error}"))
        page.set_default_timeout(WAIT_MS)
        page.goto(address)
        opened.append((page, said, quiet))
        return page

    yield opening
    for page, said, quiet in opened:
        page.context.close()
        assert [line for line in said if quiet or not is_of_the_network(line)] == []


@pytest.fixture
def until() -> Callable[[Any, str], None]:
    """Waits until an expression holds; the page's policy forbids the browser to wait by evaluating text."""

    def waiting(page: Any, expression: str) -> None:
        deadline = time.monotonic() + WAIT_MS / 1000.0
        while not page.evaluate(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            page.wait_for_timeout(50)

    return waiting


LOUD = ("error", "warning")


def is_of_the_network(line: str) -> bool:
    """Whether the browser itself says that an answer was an error, which no page can keep it from saying."""
    return line.startswith("Failed to load resource")


@pytest.fixture
def first_view(url: str, open_page: Callable[..., Any]) -> Any:
    """The page with its first answer, whole."""
    page = open_page(url)
    page.wait_for_selector("#accuracy")
    return page
