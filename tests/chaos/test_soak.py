"""What the report of a soak goes by. `make soak` runs one, and CI a minute of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chaos.soak import verdict
from chaos.soak.growth import FEWEST, Bound, fit
from chaos.soak.pace import Pace
from chaos.soak.plans import Plans
from chaos.soak.run import Asked, Soak
from chaos.soak.samples import Sampler


def test_a_figure_that_grows_with_each_job_is_beyond_its_bound_and_one_that_wavers_is_not() -> None:
    line = fit([(1000.0 * n, 50 + 0.1 * n) for n in range(FEWEST)])
    assert line is not None
    assert line.per_million == pytest.approx(100)
    assert line.grew == pytest.approx(0.1 * (FEWEST - 1))
    assert not Bound(per_million=99, wavers=0.5).allows(line)
    assert Bound(per_million=101, wavers=0.5).allows(line)
    assert Bound(per_million=99, wavers=0.8).allows(line), "less than it wavers by"
    wavers = fit([(1000.0 * n, 50 + n % 2) for n in range(101)])
    assert wavers is not None
    assert abs(wavers.per_million) < 1


def test_no_line_goes_through_samples_of_one_moment() -> None:
    assert fit([(5.0, 1.0), (5.0, 2.0)]) is None
    assert fit([(5.0, 1.0)]) is None


def test_a_run_of_ten_minutes_that_has_measured_nothing_does_not_pass() -> None:
    def complain(seconds: float, *, is_over: bool = True) -> list[str]:
        soak = Soak(
            Asked(Pace(seconds), seed=1, rate=1),
            {},
            cast(Sampler, SimpleNamespace(samples=[])),
            cast(Plans, None),
            is_over=is_over,
        )
        return verdict.find(soak).complaints

    first, *others = complain(600)
    assert first == "no job has ended: nothing was tried"
    assert {text.partition(":")[0] for text in others} >= {"memory of workers", "size of tables"}
    assert complain(20) == [first]
    assert complain(600, is_over=False) == []


@pytest.mark.parametrize("seconds", [20, 612, 7200])
def test_each_day_of_the_clock_has_two_samples_or_more(seconds: int) -> None:
    pace = Pace(seconds)
    assert pace.day_s / pace.sample_s >= 2, "a line would show at what time of the day they are"
