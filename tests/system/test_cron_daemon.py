"""Cron mode for real: Debian's cron runs what `rota crontab` prints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from tests.support.rules import rule
from tests.support.wait import eventually
from tests.system import night
from tests.system.night import COUNT, LOGS, MINUTES, Night

pytestmark = [pytest.mark.system]

WAIT_S = 270
REPORT = re.compile(
    r"^claimed (\d+), succeeded (\d+), failed (\d+), dead (\d+), oldest due: .+$", re.MULTILINE
)


@pytest.fixture
def this_night(run_place: Path) -> Iterator[Night]:
    reason = night.missing()
    if reason is not None:
        pytest.skip(reason)
    begun = night.begun(run_place)
    yield begun
    begun.end()


@pytest.mark.slow
@rule("M2", "M3", "M33", "M80", "M82")
def test_two_lines_of_a_crontab_do_every_job_once_in_the_night_of_a_server_without_a_daemon(
    this_night: Night,
) -> None:
    def reports(log: str) -> list[tuple[int, ...]]:
        return [tuple(map(int, figures)) for figures in REPORT.findall(this_night.log(log))]

    def is_over() -> bool:
        return (
            all(len(reports(log)) > MINUTES for log in LOGS)
            and not connection.execute("select from rota.job limit 1").fetchone()
        )

    with psycopg.connect(this_night.url, autocommit=True) as connection:
        eventually(is_over, WAIT_S, what="\n".join(this_night.log(log) for log in LOGS))
        this_night.rest()  # a minute may just have begun
        this_night.end()
        ended = connection.execute(
            "select id, job_type, status, result, priority from rota.job_history"
        ).fetchall()
        ticks = [
            row[0]
            for row in connection.execute(
                "select scheduled_for from rota.runs where schedule = 'minutely' order by job"
            )
        ]
        lost = connection.execute(
            "select worker, error_type, count(*) from rota.attempt group by 1, 2 order by 2"
        ).fetchall()

    assert len(ticks) >= MINUTES
    assert ticks == [ticks[0] + n * timedelta(minutes=1) for n in range(len(ticks))], (
        "each tick is one job over both lines"
    )
    assert len(ended) == COUNT + len(ticks) and {row[2] for row in ended} == {"succeeded"}
    notes = Counter((Path(this_night.directory) / "notes.txt").read_text().splitlines())
    for job, job_type, _, result, priority in ended:
        assert notes[f"end {job}"] == 1, "each job ends exactly once"
        assert notes[f"start {job}"] == (2 if job_type == "stumble" else 1)
        if job_type == "nap":
            assert result["terminals"] == []
        if priority:
            environment = result["environment"]
            assert environment["PATH"] == "/usr/bin:/bin" and not {"TERM", "LANG", "LC_ALL"} & set(
                environment
            )
    assert {(error, count) for _, error, count in lost} == {("LeaseExpired", 3), ("OSError", 1)}
    done = [report for log in LOGS for report in reports(log)]
    assert sum(succeeded for _, succeeded, _, _ in done) == COUNT + len(ticks), (
        "nothing that was said is lost"
    )
    assert sum(failed for _, _, failed, _ in done) == 1 and sum(dead for *_, dead in done) == 0
    for log in LOGS:
        said = this_night.log(log)
        assert said.count(" started, release ") == len(reports(log)), "each run says what it did"
        assert "Traceback" not in said
