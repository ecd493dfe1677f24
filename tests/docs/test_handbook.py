"""Numbers, pictures and reference in the documents are those of today's code."""

import re
from pathlib import Path

import pytest

from planner.handbook.figures import FIGURES
from planner.handbook.overview import SPLITS, sent_of, sizes_of
from planner.handbook.pages import blocks_of, filled
from planner.handbook.reference import pages
from planner.handbook.tables import TABLES

DOCS = Path(__file__).resolve().parents[2] / "docs"
HINT = "run make handbook"


def test_every_table_stands_on_a_page_and_holds():
    seen = {}
    for path in sorted(DOCS.rglob("*.md")):
        seen |= blocks_of(path.read_text(encoding="utf-8"))
    assert set(seen) == set(TABLES)
    for name, text in seen.items():
        assert text == TABLES[name](), f"{name}: {HINT}"


def test_filling_a_page_changes_its_blocks_alone():
    page = "# One\n<!-- table: schedules -->\nold\n<!-- end -->\nrest\n"
    assert filled(page) == f"# One\n<!-- table: schedules -->\n{TABLES['schedules']()}\n<!-- end -->\nrest\n"
    with pytest.raises(KeyError):
        filled("<!-- table: unknown -->\n<!-- end -->\n")


def test_every_figure_is_drawn_and_shown():
    shown = {
        name
        for path in (DOCS / "concepts").glob("*.md")
        for name in re.findall(r"\]\(figures/(\w+)\.svg\)", path.read_text(encoding="utf-8"))
    }
    assert shown == set(FIGURES) == {path.stem for path in (DOCS / "concepts" / "figures").glob("*.svg")}


@pytest.mark.parametrize("name", sorted(path.stem for path in (DOCS / "reference").glob("*.md")))
def test_the_reference_is_the_code_s(name):
    assert (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8") == pages()[name], HINT


def test_every_way_of_splitting_has_a_page():
    ways = {"data-parallel", "zero", "pipeline", "tensor", "context", "expert", "hybrids"}
    for name in ways:
        text = (DOCS / "concepts" / f"{name}.md").read_text(encoding="utf-8")
        assert blocks_of(text), name
        for heading in ("What goes wrong", "planner "):
            assert heading in text, (name, heading)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.title)
def test_the_formulas_of_the_overview_are_what_is_priced(split):
    # tensor parallelism also reduces the embedding, the logits' gradient and the loss: 2 % here
    assert sent_of(split) == pytest.approx(split.sends(sizes_of(split)), rel=0.03)


def test_every_page_says_what_it_costs_in_symbols_and_shows_a_picture():
    for path in (DOCS / "concepts").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert "](figures/" in text, path.name
        assert path.stem in ("index", "hybrids") or "**In symbols" in text, path.name
