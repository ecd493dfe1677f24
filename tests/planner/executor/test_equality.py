"""Every layout trains as one process does: gradients, losses and parameters of five steps."""

from pathlib import Path

import pytest

from tests.planner.executor import divided
from tests.planner.executor.equality import Layout, all_layouts, differences
from tests.planner.executor.equality_document import EQUAL, rows_of, sections, start, written_rows

# Every schedule, every kind of sharding, tp 1, 2 and 4, uneven stages, recompute and accumulation, in a dozen runs.
CHOSEN = (
    Layout("ddp", "dp=2,mbs=2", 2, "ddp"),
    Layout("fsdp2", "dp=2,zero=2,recompute=full:1", 2, "fsdp2"),
    Layout("zero 1, tp 2", "dp=2,tp=2,zero=1,recompute=full", 4),
    Layout("tp 4 without sequence parallel", "tp=4,sp=false", 4),
    Layout("hsdp", "dp=4,dp_shard=2,dp_replicate=2,zero=3", 4),
    Layout("gpipe, zero 3", "pp=2,dp=2,zero=3,schedule=gpipe,stages=3+2", 4),
    Layout("1f1b, three uneven stages", "pp=3,stages=2+1+2,recompute=full:1+0+1", 3),
    Layout("interleaved, zero 0", "pp=2,vpp=2,dp=2,zero=0,stages=2+1+1+1", 4),
    Layout("zb-h1, tp 2", "pp=2,tp=2,schedule=zb-h1,stages=3+2", 4),
    Layout("zb-v, zero 2", "pp=2,vpp=2,dp=2,zero=2,schedule=zb-v,stages=1+2+1+1", 4),
    Layout("dualpipe-v", "pp=2,vpp=2,schedule=dualpipe-v,stages=1+1+2+1", 2),
    Layout("1f1b, zero 1, tp 2, eight processes", "pp=2,dp=2,tp=2,zero=1,stages=3+2", 8),
)


@pytest.mark.parametrize("layout", CHOSEN, ids=lambda layout: layout.name)
def test_a_chosen_layout_equals_one_process(layout: Layout) -> None:
    found = differences(layout)
    assert found.within_limits(), found


@pytest.mark.matrix
@pytest.mark.parametrize("layout", list(all_layouts()), ids=lambda layout: layout.name)
def test_every_layout_equals_one_process(layout: Layout) -> None:
    found = differences(layout)
    assert found.within_limits(), found


@pytest.mark.matrix
def test_every_divided_layout_equals_one_process() -> None:
    # In one test: the layouts are only laid out, which takes seconds, where they are run.
    differing = [row for _, row in rows_of(list(divided.all_layouts())) if not row.endswith(EQUAL)]
    assert differing == []


def test_the_document_has_a_row_of_every_layout() -> None:
    text = (Path(__file__).parents[3] / "docs" / "executor_equality.md").read_text(encoding="utf-8")
    rows = written_rows(text)
    wanted = [start(layout) for part in sections() for layout in part.layouts]
    assert len(set(wanted)) == len(wanted)
    assert set(wanted) == set(rows)
    assert [row for row in rows.values() if not row.endswith(EQUAL)] == []
