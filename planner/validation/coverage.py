"""`python -m planner.validation.coverage`: docs/model_coverage.md and the counts beside the catalog's configs.

The page says for every model_type which reader takes it and how many counted configs it equals to the last parameter;
what no plain reader takes is listed with what the transformers extra says of it, as
tests/data/oracle_extra.json records. `--extra` reads those configs through the extra and writes the record first; it
needs the extra and takes minutes.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from cost_models.profiles import list_models, model_config, profiles_root
from cost_models.readers import FAMILIES, read_model
from cost_models.readers.sources import Reader
from cost_models.specs.counts import count_parameters
from planner.validation.oracle import OracleRow, differences, oracle_rows

HEAD: Final = """# Model coverage

Written by `make coverage` from the counted configs of `tests/data/oracle.jsonl.gz`: models that the transformers
library built without memory, each parameter once, and a few published totals. A row is exact when the parameters in
total, the active ones, those of the embedding, and those of every layer by stack are equal to the last one, and no two
layers that differ (in window, rotation, experts, mixer) are taken for one kind. `make test` holds every row to it.

"""
EXACT: Final = "exact"
AS_OFTEN_AS_RUN: Final = (
    "exact in number; layers that run several times stand as often, built lists hold them once"
)
LOOPED: Final = frozenset(
    {"d_fine", "deimv2", "inkling2_loop_text", "pp_doclayout_v3", "pp_doclayout_v4", "rt_detr"}
)
"""Models that run one module several times under another's loop, so that their lists are shorter than what runs."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of the rows of one model_type: how many are exact, and what was said of the others."""

    model_type: str
    reader: str
    rows: int
    exact: int
    remarks: tuple[str, ...]


def extra_file() -> Path:
    """What the reader of the transformers extra says of each row that no plain reader takes."""
    return profiles_root().parent / "tests" / "data" / "oracle_extra.json"


def coverage_of(rows: Iterable[OracleRow], extra: Mapping[str, str]) -> tuple[Coverage, ...]:
    """One entry a model_type in alphabetical order; `extra` maps a row's label to what the extra's reader says."""
    found: dict[str, list[OracleRow]] = {}
    for row in rows:
        found.setdefault(row.model_type, []).append(row)
    for family in FAMILIES:
        found.setdefault(family, [])
    return tuple(_covered(model_type, found[model_type], extra) for model_type in sorted(found))


def label(row: OracleRow) -> str:
    """Name and form of a row, by which the extra's record knows it."""
    return f"{row.name}, {row.form}"


def status(row: OracleRow, reader: Reader = "plain") -> str:
    """`exact`, or why the reader refuses the row, or where it differs from the built model."""
    try:
        found = differences(row, read_model(row.config, name=row.name, reader=reader))
    except BadInput as error:
        return f"refused: {error.detail}"
    if row.model_type in LOOPED and found and all(each.startswith("layers") for each in found):
        return AS_OFTEN_AS_RUN
    return "; ".join(found) or EXACT


def _covered(model_type: str, rows: Sequence[OracleRow], extra: Mapping[str, str]) -> Coverage:
    plain = model_type in FAMILIES or any("model_type" not in row.config for row in rows)
    said = [(row, status(row) if plain else extra.get(label(row), "not built")) for row in rows]
    remarks = [f"{row.form}: {word}" for row, word in said if word != EXACT]
    remarks += [f"{row.name}: {row.suspect}" for row, _ in said if row.suspect]
    if not rows:
        remarks.append("held to hand-made or published counts in the tests")
    reader = "plain" if plain else "transformers extra"
    exact = sum(word in (EXACT, AS_OFTEN_AS_RUN) for _, word in said)
    return Coverage(model_type, reader, len(rows), exact, tuple(dict.fromkeys(remarks)))


def coverage_page(coverage: Sequence[Coverage]) -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for reader, title in (("plain", "Plain readers"), ("transformers extra", "The transformers extra")):
        mine = [each for each in coverage if each.reader == reader]
        rows, exact = sum(each.rows for each in mine), sum(each.exact for each in mine)
        parts.append(
            f"## {title}\n\n{len(mine)} values of model_type, {exact} of {rows} counted configs exact.\n\n"
        )
        parts.append("| model_type | exact | remarks |\n|---|---|---|\n")
        for each in mine:
            remarks = "; ".join(each.remarks).replace("|", "/").replace("\n", " ")
            parts.append(f"| `{each.model_type}` | {each.exact} of {each.rows} | {remarks} |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def counts_table() -> str:
    """Parameters and active parameters of every model of the catalog, tab-separated."""
    lines = ["name\tparameters\tactive_parameters"]
    for name in list_models():
        counts = count_parameters(read_model(model_config(name), name=name, reader="plain"))
        lines.append(f"{name}\t{counts.parameters}\t{counts.active}")
    return "\n".join(lines) + "\n"


def read_extra() -> dict[str, str]:
    """The record; empty where there is none."""
    path = extra_file()
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def through_the_extra(rows: Iterable[OracleRow]) -> dict[str, str]:
    """What the extra's reader says of every row that no plain reader takes."""
    others = [row for row in rows if "model_type" in row.config and row.model_type not in FAMILIES]
    return {label(row): status(row, "transformers") for row in others}


def main(arguments: Sequence[str]) -> int:
    """Write the page and the table, and before them the extra's record if asked."""
    if "--extra" in arguments:
        record = json.dumps(through_the_extra(oracle_rows()), indent=1)
        extra_file().write_text(record + "\n", encoding="utf-8")
    page = coverage_page(coverage_of(oracle_rows(), read_extra()))
    root = profiles_root()
    (root.parent / "docs" / "model_coverage.md").write_text(page, encoding="utf-8")
    (root / "models" / "counts.tsv").write_text(counts_table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
