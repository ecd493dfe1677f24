"""The command `planner-server`: checks where it may listen, then runs the application."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from planner.cli.types import WholeNumber

BAD_INPUT = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=WholeNumber(0, 65_535), default=8000, show_default=True)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="Bearer keys, one a line; required on any address but loopback.",
)
def command(host: str, port: int, key_file: Path | None) -> None:
    """Serve the planner over HTTP.

    On loopback without keys, planning is open to this machine. On any other address --key-file is required.
    """
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        _refuse(f"{' and '.join(missing)} not installed; install parallelism-planner[server]")

    from api.keys import read_key_file
    from api.settings import Settings, is_loopback
    from cost_models.errors import BadInput

    if key_file is None and not is_loopback(host):
        _refuse(f"host {host[:100]} can be reached from other machines; give --key-file, or use 127.0.0.1")
    try:
        keys = read_key_file(key_file) if key_file else ()
    except BadInput as error:
        _refuse(error.detail)

    import uvicorn

    from api.app import create_app

    app = create_app(Settings(host=host, port=port, file_keys=keys))
    uvicorn.run(app, host=host, port=port, server_header=False, timeout_graceful_shutdown=5)


def main() -> None:
    """Console entry point."""
    command(prog_name="planner-server")


def _refuse(reason: str) -> NoReturn:
    click.echo(f"planner-server: {reason}", err=True)
    sys.exit(BAD_INPUT)
