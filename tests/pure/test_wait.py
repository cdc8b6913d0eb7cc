"""What a job waits for, in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.model.units import local_time
from rota.model.wait import IS_IMPORTED, UNREAD, Awaited, Holder, WaitFacts, explain_wait
from tests.support.job import make_job
from tests.support.rules import rule

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BEFORE, LATER = NOW - timedelta(minutes=1), NOW + timedelta(minutes=1)
RUNS = Holder(17, "running", BEFORE)
DIED = Holder(16, "dead", BEFORE)


def _job(status: str, **fields: Any) -> rota.Job:
    return make_job(
        20, status=rota.Status(status), **{"queue": "email", "run_at": BEFORE, **fields}
    )


def _facts(**given: Any) -> WaitFacts:
    facts: dict[str, Any] = dict.fromkeys(WaitFacts.__struct_fields__)
    return WaitFacts(**{**facts, "now": NOW, "holds": False, "held": 0, "holders": (), **given})


@rule("M11", "M60")
@pytest.mark.parametrize(
    ("job", "facts", "says"),
    [
        (
            _job("waiting", group_key="g"),
            _facts(held=1, holders=(RUNS,)),
            f"for its ordered group g: job 17 (running since {local_time(BEFORE)}) is before it",
        ),
        (
            _job("waiting", group_key="g", group_capacity=9),
            _facts(held=9, holders=(RUNS,)),
            f"for its ordered group g: job 17 (running since {local_time(BEFORE)}), … are "
            "before it",
        ),
        (
            _job("waiting", group_key="g"),
            _facts(held=1, holders=(DIED,)),
            "for its ordered group g, which job 16 halts: retry or archive that dead job",
        ),
        (
            _job("waiting", group_key="g"),
            _facts(next=20),
            "for its ordered group g, which is free: it is next",
        ),
        (
            _job("queued", waits_for="payload t", waits_since=BEFORE),
            _facts(mismatched=("1.0", "1.1")),
            "for a release that can read its payload: 1.0, 1.1 cannot; at "
            f"{local_time(BEFORE + UNREAD)} they try again, and it is dead if no other is alive",
        ),
        (
            _job("waiting", waits_for="type report", waits_since=BEFORE),
            _facts(most=3, running=3),
            "for a free slot of type report (3 of 3 run)",
        ),
        (
            _job("waiting", waits_for="type t", waits_since=BEFORE),
            _facts(),
            "for a free slot of type t, which has no limit any more",
        ),
        (
            _job("queued", waits_for="limit smtp", waits_since=BEFORE, run_at=LATER),
            _facts(),
            f"for rate limit smtp until {local_time(LATER)}",
        ),
        (
            _job("waiting", waits_for="job 5", waits_since=BEFORE),
            _facts(awaited=Awaited(5, "running", 1, 1, None)),
            "for job 5 (running)",
        ),
        (
            _job("waiting", waits_for="job 5", waits_since=BEFORE, group_key="g"),
            _facts(awaited=Awaited(6, "dead", 9, 2, "dead"), holds=True),
            "for job 6, which is dead: retry or archive it; 2 of 9 have not ended",
        ),
        (
            _job("failed"),
            _facts(paused="its queue email", paused_at=BEFORE, paused_by="ann"),
            "it is due, but its queue email is paused by ann",
        ),
        (
            _job("queued", job_type="mail"),
            _facts(unknown=True),
            f"for a worker that declares type mail: {IS_IMPORTED}",
        ),
        (
            _job("running", locked_by="host:1", locked_until=LATER),
            _facts(refused="finisher: no", refused_since=BEFORE),
            "for its outcome to be written, if it has ended: host:1 cannot write any: finisher: no",
        ),
    ],
)
def test_a_job_that_waits_says_what_for_and_since_when(
    job: rota.Job, facts: WaitFacts, says: str
) -> None:
    wait = explain_wait(job, facts)
    assert wait is not None
    assert (wait.text, wait.what, wait.since) == (says, "waits", BEFORE)


@rule("M60")
def test_a_dead_job_says_that_it_halts_its_lane() -> None:
    wait = explain_wait(_job("dead", group_key="g", failed_at=NOW), _facts(holds=True))
    assert wait is not None
    assert (wait.what, wait.since) == ("halts", NOW)
    assert wait.text == "its ordered group g until you retry or archive it"


@rule("M60")
@pytest.mark.parametrize(
    ("job", "facts"),
    [
        (_job("queued"), _facts()),
        (_job("queued", run_at=LATER, group_key="g"), _facts(held=1, holders=(RUNS,))),
        (_job("queued", run_at=LATER), _facts(paused="everything", paused_at=BEFORE)),
        (_job("queued", run_at=LATER), _facts(unknown=True)),
        (_job("queued", group_key="g"), _facts(next=20)),
        (_job("failed", group_key="g"), _facts(holds=True, held=0)),
        (_job("queued", waits_for="limit smtp", waits_since=BEFORE), _facts()),
        (_job("running", group_key="g", locked_until=LATER), _facts(holds=True)),
        (_job("dead", group_key="g"), _facts()),
    ],
)
def test_a_job_that_nothing_holds_back_says_nothing(job: rota.Job, facts: WaitFacts) -> None:
    assert explain_wait(job, facts) is None


def test_the_hour_of_an_unread_payload_is_the_same_wherever_it_stands() -> None:
    claim = Path(rota.__file__).parent / "store" / "schema" / "functions" / "claim"
    for name in ("job_claim", "payloads_unread"):
        text = (claim / f"{name}.sql").read_text("utf-8")
        hours = re.findall(r"interval '(\d+) hours?'", text)
        assert [timedelta(hours=int(count)) for count in hours] == [UNREAD], name
