"""The plots of the README."""

from xml.etree import ElementTree

import pytest

from tests.bench.svg import line_plot

SVG = "{http://www.w3.org/2000/svg}"


def test_a_higher_rate_is_drawn_higher() -> None:
    """The side axis begins at zero and ends above the highest point; the axis below ascends by factors."""
    plot = ElementTree.fromstring(line_plot([(1, 50), (10, 100), (100, 0)], "a < b", "per second"))
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in plot.iter(f"{SVG}circle")]
    (x1, y1), (x2, y2), (x3, y3) = dots
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.3)
    assert y3 - y1 == pytest.approx(y1 - y2, abs=0.3)
    assert 0 < y2 < y1 < y3


def test_another_line_is_drawn_to_the_same_scale() -> None:
    """Equal rates lie at equal heights, and the higher of both lines fits."""
    alone, beside = [(1.0, 50.0), (10.0, 100.0)], [(1.0, 100.0), (10.0, 400.0)]
    plot = ElementTree.fromstring(line_plot(alone, "", "", beside))
    grey, blue = (
        [*map(float, p.replace(",", " ").split())]
        for line in plot.iter(f"{SVG}polyline")
        if (p := line.get("points", ""))
    )
    assert grey[:2] == [blue[0], blue[3]]
    assert 0 < grey[3] < grey[1] < blue[1]


@pytest.mark.parametrize(("value", "shown"), [(999, "999"), (1000, "1k"), (123_456, "123k"), (3_000_000, "3M")])
def test_numbers_are_shown_short(value: int, shown: str) -> None:
    """Thousands and millions have a letter."""
    assert f">{shown}<" in line_plot([(value, 1)], "", "")
