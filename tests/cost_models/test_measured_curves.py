"""Curves through measured points: exact there, monotone everywhere, and honest about what lies outside."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.profiles.curves import Curve, columns_of, curve_of_points
from cost_models.profiles.measured import Point


def product(m: int, n: int, k: int, seconds: float) -> Point:
    features = {
        "m": m,
        "n": n,
        "k": k,
        "count": 1,
        "flops": 2.0 * m * n * k,
        "bytes": 4.0 * (m * n + m * k + n * k),
    }
    return Point(
        kind="kernel", name="gemm", phase="forward", precision="fp32", features=features, seconds=seconds
    )


def traffic(moved: float, seconds: float) -> Point:
    features = {"bytes": moved}
    return Point(
        kind="kernel", name="copy", phase="forward", precision="fp32", features=features, seconds=seconds
    )


def at(curve: Curve, *shape: float) -> float:
    m, n, k = shape
    sizes = {"m": np.array([m]), "n": np.array([n]), "k": np.array([k]), "count": np.array([1.0])}
    columns = columns_of(np.array([2.0 * m * n * k]), np.array([1.0]), sizes)
    return float(curve.at(columns)[0])


def of(points: list[Point]) -> Curve:
    curve = curve_of_points(points)
    assert curve is not None
    return curve


def formula(m: int, n: int, k: int) -> float:
    """A microsecond, 100 GFLOP/s, 5 GB/s."""
    return 1e-6 + 2.0 * m * n * k / 100e9 + 4.0 * (m * n + m * k + n * k) / 5e9


GRID = list(itertools.product((64, 512, 4096), repeat=3))


def test_products_are_exact_at_points_and_close_between_them():
    curve = of([product(*shape, formula(*shape)) for shape in GRID])
    for shape in GRID:
        assert at(curve, *shape) == pytest.approx(formula(*shape), rel=1e-9)
    for shape in ((100, 700, 900), (2000, 64, 3000), (8192, 8192, 8192)):
        assert at(curve, *shape) == pytest.approx(formula(*shape), rel=0.02)


@given(
    st.lists(
        st.tuples(*[st.sampled_from((16, 64, 200, 512, 1000))] * 3, st.floats(1e-6, 1e-1)),
        min_size=1,
        max_size=12,
    ),
    st.tuples(*[st.integers(1, 4000)] * 3),
    st.tuples(*[st.integers(0, 4000)] * 3),
)
def test_more_work_is_never_faster_whatever_was_measured(points, shape, more):
    # times at random: noise, or a product that happens to be slow
    unique = {(m, n, k): seconds for m, n, k, seconds in points}
    curve = of([product(*sizes, seconds) for sizes, seconds in unique.items()])
    larger = tuple(a + b for a, b in zip(shape, more, strict=True))
    assert at(curve, *larger) >= at(curve, *shape) * (1 - 1e-9)


@given(
    st.dictionaries(st.floats(1.0, 1e9), st.floats(1e-6, 1.0), min_size=1, max_size=8),
    st.floats(0.1, 1e10),
    st.floats(1, 10),
)
def test_more_traffic_is_never_faster(points, moved, factor):
    curve = of([traffic(size, seconds) for size, seconds in points.items()])
    few, many = (float(curve.at({"bytes": np.array([size])})[0]) for size in (moved, moved * factor))
    assert many >= few * (1 - 1e-9)


def test_noise_that_contradicts_itself_is_split():
    # 2 s for less work, 1 s for more: the monotone time nearest to both in the logarithm is sqrt(2) s for each
    curve = of([traffic(1e6, 2.0), traffic(2e6, 1.0)])
    assert curve.seconds == pytest.approx([2.0**0.5, 2.0**0.5])


def test_traffic_beyond_the_points_goes_on_in_proportion():
    curve = of([traffic(1e6, 1e-3), traffic(1e8, 0.1)])
    seconds = curve.at({"bytes": np.array([1e3, 1e6, 1e7, 1e8, 1e9])})
    # below: the smallest point's time, as a launch; between: 1e7 is half way in the logarithms; above: 10 x 0.1 s
    assert seconds == pytest.approx([1e-3, 1e-3, 1e-2, 0.1, 1.0])


def test_what_lies_outside_is_told():
    curve = of([product(*shape, formula(*shape)) for shape in GRID])
    sizes = {name: np.array(values) for name, values in (("m", [64, 64, 8192.0]), ("n", [512, 16, 512.0]))}
    columns = {**sizes, "k": np.array([512.0] * 3), "count": np.ones(3)}
    assert curve.outside(columns).tolist() == [False, True, True]


def test_points_without_sizes_make_no_curve():
    assert curve_of_points([traffic(0.0, 1.0)]) is None
    assert curve_of_points([traffic(1e6, 0.0)]) is None
