from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import UsageError
from rota.model.units import LONGEST_S, seconds, words


@pytest.mark.parametrize(
    ("given_as", "expected_s"),
    [
        ("20s", 20), ("5m", 300), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400), ("2w", 1209600),
        ("1.5h", 5400), ("0s", 0),
        ("1w1d1h1m1s1ms", 694861.001), (timedelta(minutes=2), 120), (timedelta(0), 0),
    ],
)  # fmt: skip
def test_a_duration_is_a_timedelta_or_numbers_with_units(
    given_as: timedelta | str, expected_s: float
) -> None:
    assert seconds(given_as, name="delay") == pytest.approx(expected_s)


def test_what_is_no_duration_is_refused_by_the_name_of_its_argument() -> None:
    nonsense: list[Any] = [
        "", " ", "s", "20", "20 s", "-5m", "5M", "1h 30m", "30m1h", "1h1h", "1e3s", "nans", "infs",
        "NaN", ".5s", "5.s", "٣s", "1,5h", "9" * 400 + "s", "5min", 20, 1.5, 0, True, None,
        float("nan"), float("inf"), b"5s", ["5s"], timedelta(seconds=-1), timedelta(days=40000),
    ]  # fmt: skip
    for wrong in nonsense:
        with pytest.raises(UsageError, match=r"^delay must (be|not be negative)") as refused:
            seconds(wrong, name="delay")
        assert len(str(refused.value)) < 200


def test_bounds_are_part_of_the_refusal() -> None:
    assert seconds("1s", name="lease", least=1.0, most=60.0) == 1
    assert seconds("60s", name="lease", least=1.0, most=60.0) == 60
    with pytest.raises(UsageError, match="lease must be at least 1 s, not '999ms'"):
        seconds("999ms", name="lease", least=1.0)
    with pytest.raises(UsageError, match="lease must be at most 1 min, not '61s'"):
        seconds("61s", name="lease", most=60.0)


@given(st.floats(1, LONGEST_S))
def test_words_are_exact_to_five_per_cent(duration_s: float) -> None:
    parts = words(duration_s).split()
    units_s = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    said_s = sum(
        float(number) * units_s[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True)
    )
    assert said_s == pytest.approx(duration_s, rel=0.051)


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(["w", "d", "h", "m", "s", "ms"])),
        min_size=1,
        unique_by=lambda part: part[1],
    )
)
def test_each_unit_stands_at_most_once_and_the_larger_first(parts: list[tuple[int, str]]) -> None:
    units_s = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    in_order = sorted(parts, key=lambda part: -units_s[part[1]])
    text = "".join(f"{number}{unit}" for number, unit in in_order)
    assert seconds(text, name="delay") == pytest.approx(
        sum(number * units_s[unit] for number, unit in parts)
    )
    if in_order != parts:
        with pytest.raises(UsageError):
            seconds("".join(f"{number}{unit}" for number, unit in parts), name="delay")


@given(st.text())
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert 0 <= seconds(text, name="delay") <= LONGEST_S
