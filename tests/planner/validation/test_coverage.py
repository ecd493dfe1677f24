"""The coverage page and the catalog's counts are what `make coverage` writes, and say what is not exact."""

from dataclasses import replace

from cost_models.profiles import profiles_root
from planner.catalog import model_counts
from planner.validation.coverage import EXACT, counts_table, coverage_of, coverage_page, read_extra, status
from planner.validation.oracle import oracle_rows

ROOT = profiles_root()
AGAIN = "run make coverage"


def test_the_page_is_what_the_command_writes():
    page = (ROOT.parent / "docs" / "model_coverage.md").read_text(encoding="utf-8")
    assert coverage_page(coverage_of(oracle_rows(), read_extra())) == page, AGAIN


def test_the_catalog_counts_are_what_the_command_writes():
    assert counts_table() == (ROOT / "models" / "counts.tsv").read_text(encoding="utf-8"), AGAIN
    assert model_counts(ROOT)["llama-3.1-8b"] == (8_030_261_248, 8_030_261_248)


def test_a_difference_and_a_refusal_stand_on_the_page():
    row = next(row for row in oracle_rows() if row.name == "gpt-oss-120b")
    assert status(row) == EXACT
    wrong = replace(row, parameters=row.parameters + 1)
    assert status(wrong).startswith("parameters 116,829,156,672 but 116,829,156,673")
    broken = replace(row, config={**row.config, "num_attention_heads": None})
    assert status(broken).startswith("refused: num_attention_heads is null")
    unknown = replace(row, config={"model_type": "no-such"})
    covered = {each.model_type: each for each in coverage_of([wrong, unknown], {})}
    assert (covered["gpt_oss"].rows, covered["gpt_oss"].exact) == (1, 0)
    assert covered["no-such"].reader == "transformers extra"
    page = coverage_page(tuple(covered.values()))
    assert "| `gpt_oss` | 0 of 1 | " in page and "116,829,156,673" in page


def test_published_totals_are_the_counts():
    lines = (ROOT / "models" / "sources.tsv").read_text(encoding="utf-8").splitlines()[1:]
    stated = {
        name: total for name, _, total, note in (line.split("\t") for line in lines) if "equals" in note
    }
    assert len(stated) > 120
    counts = model_counts(ROOT)
    assert {name: f"{counts[name][0]:,}" for name in stated} == stated
