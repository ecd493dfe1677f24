"""Catalogs and validations for people, from their JSON objects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from cost_models.units import TERA, format_bytes, format_count, format_seconds
from planner.render.console import make_console, plain, print_table, table

MAX_ROWS: Final = 60
MAX_ENTRIES: Final = 8
HIDDEN_IN_LISTS: Final = frozenset({"title", "precisions", "architecture"})
NESTED_KEYS: Final = frozenset({"options", "config"})
"""Keys whose own keys get a row each."""


def show_catalog(kind: str, name: str | None, payload: Mapping[str, Any]) -> None:
    """`planner catalog` for people: a table of all, or one entry key by key."""
    console = make_console()
    if name is None:
        entries: Sequence[Mapping[str, Any]] = payload[kind]
        columns = [key for key in entries[0] if key not in HIDDEN_IN_LISTS] if entries else []
        made = table(*(column.removesuffix("_bytes").replace("_", " ") for column in columns))
        for entry in entries:
            made.add_row(*(plain(_cell(column, entry[column])) for column in columns))
        console.print(made)
        return
    made = table("", "", "", header=False)
    described = _cluster(payload) if "groups" in payload else _rows(payload)
    for key, value in _groups(payload) if "between" in payload else described:
        text, source = _figure(key, value)
        made.add_row(f"[dim]{plain(key)}[/dim]", plain(text), f"[dim]{plain(source)}[/dim]")
    console.print(made)


def _groups(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A cluster of several device groups: a row for each group, each tier, and each pair of groups."""
    yield "name", payload["name"]
    yield "devices", payload["devices"]
    for name, group in zip(payload["group_names"], payload["groups"], strict=True):
        count = group["devices"] or group["nodes"] * group["devices_per_node"]
        nodes = f"{group['nodes']} nodes of {group['devices_per_node']}"
        inside = "".join(f"; {_tier(tier)}" for tier in group["tiers"])
        yield f"group {name}", f"{count:,} x {group['device']['name']}, {nodes}{inside}"
    for tier in payload["tiers"]:
        yield f"tier {tier['name']}", _tier(tier).removeprefix(f"{tier['name']} ")
    for link in payload["between"]:
        rate = f"{link['bytes_per_s'] / 1e9:,.4g} GB/s a device, {format_seconds(link['latency_s'])}"
        yield " - ".join(link["groups"]), f"{link['tier']}, {rate}"


def _cluster(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A cluster of one kind of device: its nodes, its links, then what is known of the device."""
    (group, *more), device = payload["groups"], payload["groups"][0]["device"]
    if more:
        yield from _rows(payload)
        return
    count, nodes = group["devices"] or group["nodes"] * group["devices_per_node"], group["nodes"]
    yield "name", payload["name"]
    yield (
        "devices",
        f"{count:,} x {device['title']}, {nodes:,} node{'s' * (nodes > 1)} of {group['devices_per_node']}",
    )
    for tier in payload["tiers"]:
        yield f"tier {tier['name']}", _tier(tier).removeprefix(f"{tier['name']} ")
    if group["host_bytes"]:
        yield "memory of a node", format_bytes(group["host_bytes"])
    for key, value in device.items():
        if key == "peak_flops":
            yield from ((f"{precision} peak", figure) for precision, figure in value.items())
        elif isinstance(value, Mapping):
            yield (
                key.removesuffix("_per_s").removesuffix("_bytes").removesuffix("_w").replace("_", " "),
                value,
            )


def _tier(tier: Mapping[str, Any]) -> str:
    """`nvlink joins 8 devices at 300 GB/s, 2 µs, shared by 2, oversubscribed 2`."""
    rate, latency = tier["bytes_per_s"]["value"] / 1e9, format_seconds(tier["latency_s"]["value"])
    text = f"{tier['name']} joins {tier['devices_per_domain']:,} devices at {rate:,.4g} GB/s, {latency}"
    text += f", shared by {tier['shared_by']}" if tier["shared_by"] > 1 else ""
    return text + (f", oversubscribed {tier['oversubscription']:g}" if tier["oversubscription"] > 1 else "")


def _rows(payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in payload.items():
        if key in NESTED_KEYS and isinstance(value, Mapping):
            yield from value.items()
        else:
            yield key, value


RISKS = ("at_risk_share", "brier")
"""Figures of the summary that stand below the table."""


def show_validation(report: Mapping[str, Any]) -> None:
    """`planner validate` for people: the rows where they are few, errors by source, errors over all."""
    console = make_console()
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    if len(rows) <= MAX_ROWS:
        console.print(_runs(rows))
    else:
        console.print(f"[dim]{len(rows)} rows, see --json; by source:[/dim]")
    groups = {
        **report["by_source"],
        **{f"core, {kind}": errors for kind, errors in report.get("core", {}).items()},
        "all": report["summary"],
        "assumed knobs": report.get("assumed", {}),
    }
    sources = report["by_source"].values()
    keys = [key for key in report["summary"] if key not in RISKS and any(key in errors for errors in sources)]
    made = table("", *(key.replace("_", " ") for key in keys), right=[key.replace("_", " ") for key in keys])
    made.columns[0].no_wrap = True
    for name, errors in groups.items():
        made.add_row(plain(name), *(_measure(key, errors.get(key)) for key in keys))
    print_table(console, made, "Predicted against measured")
    tests = report.get("tests", {})
    scored = {"tests": tests.get("tests"), "tests inside": tests.get("inside")}
    order = {key: value for key, value in report.get("ranking", {}).items() if not isinstance(value, Mapping)}
    risks = {key: report["summary"].get(key) for key in RISKS}
    _show_values(console, {"skipped": report["summary"].get("skipped"), **risks, **scored, **order})


def _show_values(console: Console, values: Mapping[str, Any]) -> None:
    """Named numbers on one line."""
    known = {key: value for key, value in values.items() if value is not None}
    words = [f"{key.replace('_', ' ')} {plain(f'{value:,.3g}')}" for key, value in known.items()]
    console.print(", ".join(words))


def _runs(rows: Sequence[Mapping[str, Any]]) -> Table:
    made = table("id", "predicted", "measured", "step error", "memory error", "verdict", "skipped")
    for row in rows:
        made.add_row(
            plain(row["id"]),
            _number(row.get("predicted_step_s")),
            _number(row.get("measured_step_s")),
            _percent(row.get("step_error")),
            _percent(row.get("memory_error")),
            plain(row.get("verdict") or ""),
            plain(row.get("skipped") or ""),
        )
    return made


def _measure(key: str, value: Any) -> str:
    """A count, or a share as a percentage."""
    if isinstance(value, float):
        return f"{value:.1%}" if key.endswith(("ape", "interval", "share", "brier")) else f"{value:+.1%}"
    return "" if value is None else plain(value)


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column.endswith(("_bytes", "parameters")):
        return format_bytes(value) if column.endswith("_bytes") else format_count(value)
    if column.endswith("_bytes_per_s"):
        return f"{value / TERA:,.2f} TB/s"
    if column.endswith("_flops"):
        return f"{value / TERA:,.0f} TFLOP/s"
    if isinstance(value, list):
        return ", ".join(str(part["name"] if isinstance(part, Mapping) else part) for part in value)
    return str(value)


def _figure(key: str, value: Any) -> tuple[str, str]:
    """The value of one key, and where it comes from if it says so."""
    if isinstance(value, Mapping) and {"value", "unit", "source"} <= set(value):
        return _amount(value["value"], value["unit"]), f"{value['kind']}: {value['source']}"
    if isinstance(value, Mapping):
        figures = [
            (inner, *_figure(inner, entry)) for inner, entry in value.items() if entry not in (None, "")
        ]
        source = figures[0][2] if figures and len({figure[2] for figure in figures}) == 1 else ""
        return ", ".join(f"{inner} {text}" for inner, text, _ in figures), source
    if isinstance(value, list):
        if len(value) > MAX_ENTRIES:
            return f"{len(value)} entries, see --json", ""
        joined = "; " if value and isinstance(value[0], Mapping) else ", "
        return joined.join(_figure(key, entry)[0] for entry in value), ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}", ""
    return str(value), ""


def _amount(value: float, unit: str) -> str:
    """A figure in the unit that people use for its size."""
    if unit == "bytes":
        return format_bytes(value)
    if unit == "s":
        return format_seconds(value)
    if unit in ("bytes/s", "flop/s"):
        name, scale = ("TFLOP/s", 1e12) if unit == "flop/s" else ("GB/s", 1e9)
        return f"{value / scale:,.4g} {name}"
    return f"{value:,.6g} {'' if unit == 'count' else unit}".rstrip()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1%}"
