"""`planner-server keys`: make, list and revoke the keys that the database holds."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from api.keys import SCOPES
from cost_models.errors import BadInput

if TYPE_CHECKING:
    from api.store import Database

BAD_INPUT: Final = 2
MAX_NAME: Final = 100


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which database."""
    function = click.option("--database", metavar="URL", help="Database of the server.")(function)
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        help="Folder of the server's files, without --database.",
    )(function)


@click.group(name="keys", short_help="Make, list and revoke keys.")
def keys() -> None:
    """Bearer keys of the service.

    Keys of one name see each other's plans and runs, so that a key can be replaced: make a new one of the name, then
    revoke the old one. A key of scope admin sees everything.
    """


@keys.command(name="create")
@click.option("--scope", type=click.Choice(SCOPES), required=True, help="Each includes those before it.")
@click.option("--name", default="default", show_default=True, help="Whose key it is.")
@_place
def create(scope: Any, name: str, database: str | None, data_dir: Path | None) -> None:
    """Make a key and print it once; only its hash is kept."""
    from api.keyring import create_key

    if not name.isprintable() or not 1 <= len(name) <= MAX_NAME:
        _refuse(f"--name has {len(name)} characters; give 1 to {MAX_NAME} printable ones")
    key_id, key = create_key(_open(database, data_dir), name, scope)
    click.echo(f"{key_id} ({name}, {scope}); the key is shown this once:", err=True)
    click.echo(key)


@keys.command(name="list")
@_place
def list_all(database: str | None, data_dir: Path | None) -> None:
    """Every key: id, name, scope, when it was made, last used and revoked."""
    from api.keyring import list_keys

    for line in list_keys(_open(database, data_dir)):
        used, revoked = line.last_used_at or "never used", line.revoked_at or "valid"
        click.echo("\t".join((line.id, line.name, line.scope, line.created_at, used, revoked)))


@keys.command(name="revoke")
@click.argument("key_id")
@_place
def revoke(key_id: str, database: str | None, data_dir: Path | None) -> None:
    """End a key; running servers refuse it within five seconds."""
    from api.keyring import revoke_key

    if not revoke_key(_open(database, data_dir), key_id):
        _refuse(f"no key {key_id[:60]!r}; planner-server keys list shows them")
    click.echo(f"{key_id} is revoked", err=True)


def _open(url: str | None, data_dir: Path | None) -> "Database":
    """The database of the options, brought up to date."""
    from api.store import Database

    if url is None and data_dir is None:
        _refuse("no database given; give --data-dir or --database, as the server is given")
    try:
        database = Database(url, data_dir)
        database.prepare()
    except BadInput as error:
        _refuse(error.detail)
    return database


def _refuse(reason: str) -> Any:
    click.echo(f"planner-server: {reason}", err=True)
    sys.exit(BAD_INPUT)
