"""The command `planner-server`: checks where it may listen, runs the application, and stops it in order."""

import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from api.key_commands import keys
from cost_models.errors import BadInput
from planner.cli.types import WholeNumber

if TYPE_CHECKING:
    from api.settings import Settings

BAD_INPUT: Final = 2
GB: Final = 10**9
NEEDED: Final = ("fastapi", "uvicorn", "dbos", "alembic")
FORCED_S: Final = 5
"""How long answers may still take to be sent once the jobs have been given back."""


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=WholeNumber(0, 65_535), default=8000, show_default=True)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="Bearer keys, one a line; keys are required on any address but loopback.",
)
@click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://USER@HOST/NAME.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of the SQLite file, without --database.  [default: ~/.local/share/parallelism-planner]",
)
@click.option("--searches", type=WholeNumber(1, 4096), help="Searches at once.  [default: one a core]")
@click.option("--search-memory-gb", type=click.FloatRange(0.1), default=8.0, show_default=True)
@click.option("--max-queued", type=WholeNumber(0, 10**6), default=100, show_default=True)
@click.option("--drain-seconds", type=click.FloatRange(0, 3600), default=10.0, show_default=True)
@click.option("--keep-days", type=click.FloatRange(0, 36_500, min_open=True), default=90.0, show_default=True)
@click.option("--max-stored-gb", type=click.FloatRange(0), default=10.0, show_default=True)
@click.option("--allow-runs", is_flag=True, help="Let plans be run, with keys of scope run.")
@click.option(
    "--run-root",
    "run_roots",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A folder whose models and data runs may read; repeatable.",
)
@click.option(
    "--run-factory",
    "run_factories",
    multiple=True,
    metavar="ENTRY",
    help="A package.module:function that runs may call; repeatable.",
)
@click.option(
    "--run-launch",
    "run_launch",
    multiple=True,
    metavar="KEY=VALUE",
    help="What launchers are told, as slurm.partition=gpu; repeatable.",
)
@click.option(
    "--max-local-runs", type=WholeNumber(0, 1000), default=1, show_default=True, help="On one host."
)
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Serve the planner over HTTP.

    On loopback without keys, planning is open to this machine. On any other address keys are required: a --key-file,
    or keys made with `planner-server keys create`.
    """
    if context.invoked_subcommand is not None:
        return
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        _refuse(f"{' and '.join(missing)} not installed; pip install 'parallelism-planner[server]'")
    try:
        settings = _settings(given)
        _check_reach(settings)
    except BadInput as error:
        _refuse(error.detail)
    if sys.stderr.isatty():  # people; logs for programs follow
        click.echo(f"The page is at http://{settings.host}:{settings.port}/ (Ctrl+C ends it)", err=True)
    serve(settings)


def serve(settings: "Settings") -> None:
    """Run a server until it is told to stop; a second signal stops it at once."""
    import uvicorn

    from api.app import create_app
    from api.logs import configure_logs
    from api.slow import PatientProtocol

    app = create_app(settings)

    class Server(uvicorn.Server):
        """Stops in order: not ready, searches end or go back into the queue, then the port closes."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """The first signal drains, while requests are still answered."""
            if app.state.jobs.is_draining:
                super().handle_exit(sig, frame)
            else:
                app.state.jobs.is_draining = True
                threading.Thread(target=self._drain, daemon=True).start()

        def _drain(self) -> None:
            app.state.jobs.drain(settings.drain_s)
            app.state.watch.close()
            self.should_exit = True

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        server_header=False,
        access_log=False,
        log_config=None,
        http=PatientProtocol,
        timeout_graceful_shutdown=FORCED_S,
    )
    configure_logs()
    Server(config).run()


def main() -> None:
    """Console entry point."""
    command(prog_name="planner-server")


def default_data_dir() -> Path:
    """Where a user's data belongs (XDG base directories)."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "parallelism-planner"


def _settings(given: dict[str, Any]) -> "Settings":
    """The settings of the options; raises BadInput."""
    from api.keys import read_key_file
    from api.settings import Settings
    from api.store.engine import database_url

    if given["database"] is not None:
        database_url(given["database"])
    searches = {"num_searches": given["searches"]} if given["searches"] else {}
    return Settings(
        host=given["host"],
        port=given["port"],
        file_keys=read_key_file(given["key_file"]) if given["key_file"] else (),
        database=given["database"],
        data_dir=given["data_dir"] or default_data_dir(),
        starts_jobs=True,
        worker_memory_bytes=int(given["search_memory_gb"] * GB),
        max_queued=given["max_queued"],
        drain_s=given["drain_seconds"],
        keep_days=given["keep_days"],
        max_stored_bytes=int(given["max_stored_gb"] * GB),
        **searches,
        **_runs(given),
    )


def _runs(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of runs; raises BadInput for a folder that is none, or options that no launcher has."""
    from api.runs.availability import check_configured

    stated = {
        key: given[key]
        for key in ("allow_runs", "run_roots", "run_factories", "run_launch", "max_local_runs")
    }
    for root in given["run_roots"]:
        if not root.is_dir():
            raise BadInput(f"--run-root {str(root)[:200]} is no folder; make it, or give another")
    check_configured(given["run_launch"])
    return stated


def _check_reach(settings: "Settings") -> None:
    """Raise BadInput where others could reach the server and no key is asked of them."""
    from api.keyring import list_keys
    from api.settings import is_loopback
    from api.store import Database

    if is_loopback(settings.host) or settings.file_keys:
        return
    detail = (
        f"host {settings.host[:100]} can be reached from other machines; give --key-file, make a key with "
    )
    refusal = BadInput(detail + "planner-server keys create, or use 127.0.0.1")
    if settings.database is None and not (settings.data_dir or Path()).exists():
        raise refusal
    database = Database(settings.database, settings.data_dir)
    try:
        if all(line.revoked_at is not None for line in list_keys(database)):
            raise refusal
    finally:
        database.close()


def _refuse(reason: str) -> NoReturn:
    click.echo(f"planner-server: {reason}", err=True)
    sys.exit(BAD_INPUT)


command.add_command(keys)
