"""The reference of the documents, from the code itself: commands, engines with their options, what is known by name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from planner.catalog import KINDS, describe_entry, list_entries
from planner.cli.group import planner as command_line
from planner.formats.registry import FORMATS
from planner.request import SearchRequest

WRITTEN: Final = "Written from the code by `make handbook`.\n"


def write_reference(folder: Path) -> tuple[Path, ...]:
    """One page a subject."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages().items():
        written.append(folder / f"{name}.md")
        written[-1].write_text(text, encoding="utf-8")
    return tuple(written)


def pages() -> dict[str, str]:
    """Every page by its name."""
    return {
        "commands": _commands(),
        "engines": _engines(),
        "search": _search(),
        "formats": _formats(),
    } | {kind: _known(kind) for kind in KINDS if kind != "engines"}


def _commands() -> str:
    """Every command with its arguments and options."""
    context = click.Context(command_line, info_name="planner")
    lines = ["# Commands", "", WRITTEN]
    for name in command_line.list_commands(context):
        command = command_line.get_command(context, name)
        if command is not None and not command.hidden:
            lines += _command(command, f"planner {name}")
    return "\n".join(lines)


def _command(command: click.Command, name: str) -> Iterator[str]:
    """One command, and those inside it."""
    yield from (f"## {name}", "", _first(command.help or command.short_help or ""), "")
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from _command(found, f"{name} {inner}")
    options = [
        each
        for each in command.get_params(context)
        if isinstance(each, click.Option) and "--help" not in each.opts
    ]
    if options:
        yield from ("| option | takes | meaning |", "| --- | --- | --- |")
        yield from (_option(option, context) for option in options)
        yield ""


def _option(option: click.Option, context: click.Context) -> str:
    names = " ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else _cell(option.make_metavar(context))
    return f"| {names} | {takes} | {_cell(option.help or '')} |"


def _engines() -> str:
    """Every engine: versions and typed options."""
    lines = ["# Engines", "", WRITTEN]
    for entry in list_entries("engines"):
        name = str(entry["name"])
        full = describe_entry("engines", name)
        lines += [f"## {name}", "", f"Versions: {_plain(full['versions'])}.", ""]
        options = full["options"]
        if isinstance(options, Mapping) and options:
            lines += ["| option | default | values |", "| --- | --- | --- |"]
            lines += [_engine_option(key, value) for key, value in options.items()]
            lines.append("")
    return "\n".join(lines)


def _engine_option(name: str, schema: Any) -> str:
    values = schema if isinstance(schema, Mapping) else {}
    low, high = values.get("minimum"), values.get("maximum")
    shown = _plain(values.get("enum")) or str(values.get("type", ""))
    if low is not None and high is not None:
        shown = f"{_plain(low)} to {_plain(high)}"
    return f"| `{name}` | {_cell(_plain(values.get('default')))} | {_cell(shown)} |"


def _search() -> str:
    """What a search may be asked for."""
    schema = SearchRequest.model_json_schema()
    lines = ["# Search requests", "", WRITTEN, "| key | default |", "| --- | --- |"]
    for name, values in schema["properties"].items():
        lines.append(f"| `{name}` | {_cell(_plain(values.get('default')))} |")
    return "\n".join([*lines, ""])


def _formats() -> str:
    """Settings of frameworks that are read and written."""
    lines = ["# Formats", "", WRITTEN, "| name | | read | written |", "| --- | --- | --- | --- |"]
    for name, each in FORMATS.items():
        lines.append(f"| `{name}` | {each.title} | {_yes(each.read)} | {_yes(each.write)} |")
    return "\n".join([*lines, ""])


def _known(kind: str) -> str:
    """Names of one kind with what distinguishes them."""
    entries = list_entries(kind)
    keys = list(entries[0])
    lines = [
        f"# {kind.capitalize()}",
        "",
        WRITTEN,
        "| " + " | ".join(key.replace("_", " ") for key in keys) + " |",
    ]
    lines.append("| " + " | ".join("---" for _ in keys) + " |")
    lines += ["| " + " | ".join(_cell(_plain(entry.get(key))) for key in keys) + " |" for entry in entries]
    return "\n".join([*lines, ""])


def _yes(value: object) -> str:
    return "yes" if value else ""


def _plain(value: object) -> str:
    """A value as a reader writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if isinstance(value, Mapping):
        return " ".join(
            f"{key.replace('_', ' ')} {_plain(each)}" for key, each in value.items() if each is not None
        )
    if isinstance(value, list | tuple):
        return "; ".join(_plain(each) for each in value)
    return str(value)


def _first(text: str) -> str:
    """The first paragraph, on one line."""
    return " ".join(text.strip().split("\n\n")[0].replace("\b", "").split())


def _cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.replace("|", "\\|").split())
