"""Fitted constants into profiles/: single lines change, every other line stays as it is."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cost_models.profiles import profiles_root
from cost_models.roofline.generations import tuned_generations
from planner.validation.calibrate.fit import Calibration
from planner.validation.calibrate.parameters import COMMON, ULTRA, Parameter
from planner.validation.calibrate.spread import DOUBLING, Spreads, spreads_of
from planner.validation.mapping import Case

SHARED: Final = ("matmul", "attention", "memory")
UNSEEN: Final = ("ada", "cdna2", "cdna3", "cdna4")
"""Architectures that no fitted run shows: they take what the others have in common."""

DIGITS: Final = 4
COMMAND: Final = "make calibrate on profiles/published"

Section = dict[str, str]


def write_constants(found: Calibration) -> tuple[Path, ...]:
    """Write scales and factors; the files that were written."""
    root = profiles_root()
    written = [_write_scale(found, root, name) for name in (*_architectures(found), *UNSEEN)]
    generations = root / "calibration" / "generations.toml"
    _forget(generations)
    replace_lines(generations, _factors(found))
    return (*written, generations)


def write_spreads(found: Calibration) -> Path:
    """Write how well steps are known; the file that was written."""
    path = profiles_root() / "calibration" / "uncertainty.toml"
    path.write_text(_spread_text(spreads_of(found), found), encoding="utf-8")
    return path


def constants(found: Calibration, architecture: str) -> Mapping[str, float]:
    """Values of the [scale] of one architecture: what is shared times its own."""
    known = {(p.kind, p.owner, p.field): p.of(value) for p, value in found.values}
    scale = {
        name: known.get((COMMON, COMMON, name), 1.0) * known.get(("architecture", architecture, name), 1.0)
        for name in SHARED
    }
    narrow = known.get(("architecture", architecture, "narrow"), 1.0)
    scale["narrow"] = scale["matmul"] * narrow
    for name in ("flash2", "convolution"):
        own = [
            known[key]
            for key in ((COMMON, COMMON, name), ("architecture", architecture, name))
            if key in known
        ]
        if own:
            scale[name] = math.prod(own)
    return scale


def _write_scale(found: Calibration, root: Path, architecture: str) -> Path:
    path = root / "efficiency" / f"{architecture}.toml"
    rows = [left.case for left in found.rows if left.case.architecture == architecture]
    seen = _seen(rows) if rows else "no run of this architecture: what the fitted ones have in common"
    values = {
        name: figure_line(name, value, "ratio", seen)
        for name, value in constants(found, architecture).items()
    }
    replace_lines(path, {"scale": values})
    return path


def _factors(found: Calibration) -> dict[str, Section]:
    """Lines of generations.toml by section: devices, and every generation, with what tuned ones share in it."""
    sections: dict[str, Section] = {}
    known = {(p.kind, p.owner, p.field): (p, p.of(value)) for p, value in found.values}
    for (kind, owner, field), (parameter, value) in known.items():
        if kind not in ("device", "generation"):
            continue
        rows = [left.case for left in found.rows if _owns(parameter, left.case)]
        unit = "s" if field.endswith("_s") else "ratio"
        for name in ULTRA if owner in ULTRA else (owner,):
            sections.setdefault(f"{kind}s.{name}", {})[field] = figure_line(field, value, unit, _seen(rows))
    shared = known[COMMON, COMMON, "tuned"][1] if (COMMON, COMMON, "tuned") in known else 1.0
    for name, tuned in tuned_generations().items():
        own = known.get(("generation", name, "kernels"))
        if not tuned and own is None:
            continue
        rows = [left.case for left in found.rows if left.case.situation.generation.name == name]
        seen = _seen(rows) if rows else "no run of it: what the vendor's own runs have in common"
        value = (own[1] if own else 1.0) * (shared if tuned else 1.0)
        sections.setdefault(f"generations.{name}", {})["kernels"] = figure_line(
            "kernels", value, "ratio", seen
        )
    return sections


def _owns(parameter: Parameter, case: Case) -> bool:
    owners = ULTRA if parameter.owner in ULTRA else (parameter.owner,)
    return case.situation.generation.name in owners or case.situation.cluster.device.name in owners


def _architectures(found: Calibration) -> tuple[str, ...]:
    return tuple(sorted({left.case.architecture for left in found.rows}))


def _seen(cases: Sequence[Case]) -> str:
    sources = sorted({case.run.source for case in cases})
    return f"{COMMAND}: {len(cases)} core rows of {', '.join(sources)}"


def figure_line(name: str, value: float, unit: str, source: str) -> str:
    """One figure of a TOML file."""
    return f'{name} = {{ value = {value:.{DIGITS}g}, unit = "{unit}", kind = "fitted", source = "{source}" }}'


def _forget(path: Path) -> None:
    """Take out the lines that an earlier fit wrote."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if 'kind = "fitted"' not in line]
    path.write_text("".join(kept), encoding="utf-8")


def replace_lines(path: Path, sections: Mapping[str, Section]) -> None:
    """Set lines inside [sections] of a TOML file; sections that it lacks are added at the end."""
    text = path.read_text(encoding="utf-8")
    for section, lines in sections.items():
        head = f"[{section}]\n"
        if head not in text:
            text = f"{text.rstrip()}\n\n{head}"
        before, _, rest = text.partition(head)
        inside, mark, after = rest.partition("\n[")
        for name, line in lines.items():
            found = re.compile(rf"^{name} = .*$", re.MULTILINE)
            inside = found.sub(line, inside) if found.search(inside) else f"{inside.rstrip()}\n{line}\n"
        text = f"{before}{head}{inside.lstrip(chr(10))}{mark}{after}"
    path.write_text(text, encoding="utf-8")


def _spread_text(spreads: Spreads, found: Calibration) -> str:
    """profiles/calibration/uncertainty.toml as a whole."""
    source = f"{COMMAND}: {len(found.rows)} rows of {len(found.sources)} sources"
    architectures = ", ".join(f'"{name}"' for name in _architectures(found))
    generations = ", ".join(f'"{name}"' for name in spreads.generations)
    lines = [
        "# Standard deviations of log(measured / predicted) step time; written by `make calibrate`.",
        "# Rows of [*.devices]: a device, an architecture's other devices, and other for all the rest;",
        "# columns: fitted_generations, then all other software; so are the devices of the largest run in `largest`.",
        f"fitted_architectures = [{architectures}]",
        f"fitted_generations = [{generations}]",
        figure_line("doubling", DOUBLING, "ratio", source),
        figure_line("own", spreads.own, "ratio", source),
    ]
    for kind, known in spreads.kinds.items():
        lines += [
            f"\n[{kind}]",
            figure_line("noise", known.noise, "ratio", source),
            figure_line("communication", known.communication, "ratio", source),
            f"largest = [{', '.join(map(str, known.largest))}]",
            f"\n[{kind}.devices]",
            *(f"{name} = [{', '.join(map(repr, row))}]" for name, row in known.table.items()),
        ]
    return "\n".join(lines) + "\n"
