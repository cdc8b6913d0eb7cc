"""The charts, without a database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from rota.dashboard.charts import HAIRLINE, Bar, draw, draw_lines
from rota.dashboard.overview import list_bars, list_times
from tests.support.rules import rule

NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@rule("M85")
def test_a_part_has_its_true_height_and_the_least_one_is_still_seen() -> None:
    drawn = draw([Bar("now", [750, 249, 1, 0])], ["a", "b", "c", "d"], "jobs")
    heights = dict(re.findall(r'class="(\w)".*?height="([\d.]+)"', drawn))
    assert heights == {"a": "75.0", "b": "24.9", "c": str(HAIRLINE)}


@rule("M85")
def test_the_charts_of_ends_and_of_times_have_the_same_hours_and_a_line_has_gaps() -> None:
    figures: Any = [
        SimpleNamespace(
            hour=NOW.replace(minute=0) - timedelta(hours=back), succeeded=1, retried=0, dead=0,
            waited_p95_s=2.0, ran_p95_s=4.0,
        )
        for back in (0, 1, 4)
    ]  # fmt: skip
    ends, times = list_bars(figures, 6, NOW), list_times(figures, 6, NOW)
    assert [bar.label for bar in ends] == [bar.label for bar in times]
    assert [bar.parts[1] for bar in times] == [None, 4.0, None, None, 4.0, 4.0]
    paths = re.findall(r' d="([^"]+)"', draw_lines(times, ["waited", "ran"], "times"))
    assert paths[1] == "M14 0.0L14 0.0 M44 0.0L44 0.0 L54 0.0"
    assert paths[0] == paths[1].replace(" 0.0", " 50.0")
