"""Whole-number tables never exceed the tables they stand for."""

import numpy as np

from planner.search.scaling import Scale, tables_on_domains


def test_tables_are_lower_bounds_and_lines_need_no_terms():
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(2, 40))
        tables = np.stack((rng.uniform(-5, 5) * np.arange(size) + 1.0, rng.uniform(-3, 3, size).cumsum()))
        low, high = np.zeros(2, dtype=np.int64), np.full(2, size - 1)
        scale = Scale(1e6)
        whole = tables_on_domains(tables, low, high, scale)
        assert not any(stage == 0 for stage, _ in whole.terms)
        for stage in range(2):
            for position in range(size):
                value = whole.constants[stage] + whole.slopes[stage] * position
                value += whole.terms.get((stage, position), 0)
                exact = tables[stage, position] * scale.per_unit
                assert exact - 0.5 * size - 2 <= value <= exact + 1e-3


def test_a_target_gets_units_finer_than_the_gap():
    scale = Scale.for_target(20.0, terms=100, gap=1e-3)
    # 100 terms lose at most a unit each; 1 % of a gap of 1e-3 of 20 s is 2e-4 s.
    assert 100 / scale.per_unit <= 2e-4 * (1 + 1e-12)
