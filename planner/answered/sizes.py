"""Size tables, read back."""

from planner.answered.parts import STRANGE, Json, strange
from planner.request import SearchRequest
from planner.sizing import SizeReport
from planner.sizing.rows import SizeRow

HEAD = ("cluster", "devices", "marks", "note")


def size_report(search: SearchRequest, found: Json) -> SizeReport:
    """The table of a search; raises BadInput where the object is none."""
    try:
        return SizeReport(
            found["model"],
            found["unit"],
            search,
            tuple(_row(each) for each in found["rows"]),
            tuple(found["proofs"]),
            tuple(found["warnings"]),
            tuple(found["left_out"]),
        )
    except STRANGE as error:
        raise strange("size table", error) from None


def _row(found: Json) -> SizeRow:
    values = {key: value for key, value in found.items() if key not in HEAD}
    return SizeRow(found["cluster"], found["devices"], values, tuple(found["marks"]), found["note"])
