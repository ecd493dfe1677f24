"""Collectives beside public readings: within bounds, and the page says what the code says."""

from pathlib import Path
from statistics import median

import pytest

from cost_models.operators.base import Collective
from planner.validation.collectives import bus_bytes, page, readings

ROOT = Path(__file__).resolve().parents[3]
LARGE_BYTES = 2.0**28


def test_readings_are_met():
    errors = {one.id: one.predicted_s / one.measured_s - 1.0 for one in readings()}
    assert len(errors) == len(set(errors)) >= 40
    assert median(abs(error) for error in errors.values()) < 0.05
    assert {name: error for name, error in errors.items() if abs(error) > 0.25} == {}


def test_large_messages_are_met_more_closely():
    large = [one for one in readings() if one.payload_bytes >= LARGE_BYTES and "ethernet" not in one.outer]
    assert {one.id for one in large if abs(one.predicted_s / one.measured_s - 1.0) > 0.15} == set()


def test_no_reading_is_predicted_faster_than_its_links():
    # The bus bandwidth of a ring cannot exceed 8 ports of a node, nor what a device has in its domain.
    for one in readings():
        if one.collective is Collective.ALL_REDUCE and one.span.size > 16:
            assert one.rate(one.predicted_s) < 8 * 50e9


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        (Collective.ALL_REDUCE, 1.75e9),  # 2 x 7/8 x 1e9
        (Collective.ALL_GATHER, 0.875e9),
        (Collective.ALL_TO_ALL, 0.875e9),
        (Collective.SEND_RECEIVE, 1e9),
    ],
)
def test_bus_bytes(collective, expected):
    assert bus_bytes(collective, 1e9, 8) == expected


def test_the_page_is_what_the_code_writes():
    assert (ROOT / "docs" / "collectives.md").read_text(encoding="utf-8") == page()
