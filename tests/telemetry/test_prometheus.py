"""`/metrics` of a worker and of several processes, read by the parser of prometheus_client."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import rota
from rota import events
from rota.errors import ConfigurationError
from rota.integrations import prometheus
from rota.integrations.prometheus_sums import Sums
from rota.model.outcome import Failure
from tests.store.work import insert
from tests.support.rules import rule
from tests.support.wait import aeventually, eventually
from tests.telemetry.conftest import StartSupervisor
from tests.telemetry.scrape import read, scrape, work
from tests.worker.table import Connection


@rule("M85")
async def test_a_scrape_of_a_worker_has_what_it_did_and_the_gauges_of_the_database(
    app: rota.App, connection: Connection, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "READ_S", 0.0)
    registry = CollectorRegistry()
    prometheus.instrument(app, registry=registry)

    @app.job("good", queue="mail")
    async def good() -> None:
        await asyncio.sleep(0.03)

    @app.job("bad", max_attempts=2, retry=rota.Fixed("1s", jitter=0))
    def bad() -> None:
        raise ValueError("no")

    @app.job("later")
    async def later() -> rota.Snooze:
        return rota.Snooze("1h")

    await good.aenqueue()
    await good.aenqueue()
    await bad.aenqueue()
    await later.aenqueue()
    insert(connection, 3, job_type="unknown", queue="elsewhere")
    ended = {("good", "succeeded"): 2, ("bad", "dead"): 1, ("later", "snoozed"): 1}

    def is_done() -> bool:
        count = registry.get_sample_value
        names = ("job_type", "outcome")
        return ended == {
            key: count("rota_attempts_total", dict(zip(names, key, strict=True))) for key in ended
        }

    async with work(app, free_port):
        await aeventually(is_done)
        seen = await asyncio.to_thread(scrape, free_port)
    assert seen["rota_enqueued_jobs_total", "good"] == 2
    assert seen["rota_attempts_total", "bad", "failed"] == 1
    assert seen["rota_attempts_total", "bad", "dead"] == 1
    assert seen["rota_attempts_total", "later", "snoozed"] == 1
    assert seen["rota_attempt_duration_seconds_count", "good"] == 2
    assert 0.06 <= seen["rota_attempt_duration_seconds_sum", "good"] < 60
    assert seen["rota_attempt_duration_seconds_bucket", "good", "0.025"] == 0
    assert seen["rota_attempt_duration_seconds_count", "bad"] == 2
    assert seen["rota_claim_delay_seconds_count", "mail"] == 2
    assert seen["rota_worker_processes", "test", rota.__version__] == 1
    assert seen["rota_due_jobs", "elsewhere"] == 3
    assert seen["rota_dead_jobs",] == 1


@rule("M3")
def test_no_library_of_an_integration_worker_or_command_is_imported_until_it_is_used() -> None:
    late = ["prometheus_client", "opentelemetry", "sentry_sdk", "pydantic"]
    late += ["rota.worker.worker", "rota.cli.work"]
    code = (
        "import sys, rota, rota.cli; rota.Enqueued(1, True, 'queued').to_dict(); "
        f"print([name for name in {late!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@rule("M85")
async def test_one_worker_of_two_serves_the_gauges(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps = [rota.App(database), rota.App(database)]
    for app in apps:
        app.job("a")(lambda: None)
        prometheus.instrument(app, registry=CollectorRegistry())
    renders = [app._metrics for app in apps]
    assert renders[0] is not None and renders[1] is not None
    async with work(apps[1]):
        async with work(apps[0], signals=True):
            first = read(await asyncio.to_thread(renders[0]))
            second = read(await asyncio.to_thread(renders[1]))
            assert ("rota_dead_jobs",) in first and ("rota_dead_jobs",) not in second
        # The reader has stopped: another one reads them, at once.
        assert ("rota_dead_jobs",) not in read(await asyncio.to_thread(renders[0]))
        monkeypatch.setattr(prometheus, "READ_S", 0.0)
        assert ("rota_dead_jobs",) in read(await asyncio.to_thread(renders[1]))


@rule("M14")
async def test_the_gauges_are_read_once_for_scrapes_that_come_together(
    app: rota.App, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("READ_S", "ANSWER_S"):
        monkeypatch.setattr(prometheus, name, 3_600.0)  # however slow this machine is
    app.job("a")(lambda: None)
    prometheus.instrument(app, registry=CollectorRegistry())
    render = app._metrics
    assert render is not None
    async with work(app):
        first = read(await asyncio.to_thread(render))
        insert(connection, 1, queue="new", job_type="b")
        assert read(await asyncio.to_thread(render)) == first


@rule("M86")
async def test_a_database_that_hangs_holds_up_no_counter(
    app: rota.App, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "ANSWER_S", 0.2)
    app.job("a")(lambda: None)
    registry = CollectorRegistry()
    prometheus.instrument(app, registry=registry)
    render = app._metrics
    assert render is not None
    async with work(app):
        with connection.transaction():
            connection.execute("lock table rota.installation in access exclusive mode")
            for count in (1, 2):
                assert ("rota_dead_jobs",) not in read(await asyncio.to_thread(render))
                assert registry.get_sample_value("rota_gauge_failures_total") == count
            readers = [thread for thread in threading.enumerate() if thread.name == "rota-gauges"]
            assert len(readers) == 1
        readers[0].join(30)
        assert ("rota_dead_jobs",) in read(await asyncio.to_thread(render))


@rule("M85")
def test_events_are_counted_with_labels_that_code_names(app: rota.App) -> None:
    app.job("mine")(lambda: None)
    prometheus.instrument(app, registry=CollectorRegistry())
    assert app._metrics is not None
    of: dict[str, Any] = {"job": 1, "attempt": 1, "claim": 1, "worker": "w"}
    emit = app._bus.emit
    failure = Failure("E", "m", "fatal", "r")
    emit(events.JobReaped(**of, job_type="made up in a row", status="dead"))
    emit(events.JobDead(**of, job_type="made up in another", failure=failure))
    emit(events.LeaseLost(**of, job_type="mine"))
    emit(events.HandlerAbandoned(**of, job_type="mine", abandoned=1, slots=2))
    emit(events.BreakerOpened(breaker="b", key="k", for_s=1, failures=3, reason="r"))
    emit(events.DatabaseLost(service="claimer", reason="r", retry_in_s=1))
    for over in (False, True):
        emit(events.LoopBlocked(job=None, job_type=None, blocked_s=2.5, place="p", over=over))
    seen = read(app._metrics())
    assert seen["rota_recovered_jobs_total", "other"] == 1
    assert seen["rota_attempts_total", "other", "dead"] == 1
    assert seen["rota_attempts_total", "mine", "lost"] == 1
    assert seen["rota_worker_problems_total", "handler_abandoned"] == 1
    assert seen["rota_breaker_openings_total", "b"] == 1
    assert seen["rota_database_outages_total", "claimer"] == 1
    assert seen["rota_loop_blocked_seconds_total",] == 2.5
    assert not [name for name in seen if "rota_attempt_duration_seconds_sum" in name]


@rule("M3")
def test_a_second_app_in_one_registry_is_refused_with_what_to_do(
    app: rota.App, database: str
) -> None:
    registry = CollectorRegistry()
    prometheus.instrument(app, registry=registry)
    with pytest.raises(ConfigurationError, match="instrumented already"):
        prometheus.instrument(app, registry=registry)
    other = rota.App(database)
    with pytest.raises(ConfigurationError, match="give each App its own"):
        prometheus.instrument(other, registry=registry)
    assert other._metrics is None


# Several processes


ONE = """\
# TYPE a_total counter
a_total{x="1"} 2
# TYPE a_created gauge
a_created{x="1"} 1.7e+09
# TYPE rota_gauge gauge
rota_gauge 5
# TYPE mine gauge
mine 7
"""


@rule("M85")
def test_counters_outlive_their_process_and_gauges_do_not() -> None:
    sums = Sums()

    def ask(pid: int, text: str | None) -> None:
        if text is not None:
            sums.note(pid, text)

    asks = {pid: lambda pid=pid: ask(pid, ONE) for pid in (11, 12)}
    seen = read(sums.collect(asks))
    assert seen == {
        ("a_total", "1"): 4, ("rota_gauge",): 10, ("mine", "1"): 7, ("mine", "2"): 7,
    }  # fmt: skip
    sums.end(11)
    assert read(sums.collect({12: asks[12]}))["a_total", "1"] == 4
    seen = read(sums.collect({12: asks[12], 13: lambda: ask(13, ONE)}))
    assert seen["a_total", "1"] == 6 and seen["rota_gauge",] == 10
    assert sorted(name for name in seen if name[0] == "mine") == [("mine", "1"), ("mine", "2")]


@rule("M85")
def test_where_there_are_several_databases_each_has_its_label() -> None:
    text = re.sub(r"\ba_", "rota_a_", ONE)
    sums = Sums()
    asks = {pid: lambda pid=pid: sums.note(pid, text, f"h/{pid}") for pid in (11, 12)}
    seen = read(sums.collect(asks))
    assert seen == {
        ("rota_a_total", "h/11", "1"): 2, ("rota_gauge", "h/11"): 5, ("mine", "1"): 7,
        ("rota_a_total", "h/12", "1"): 2, ("rota_gauge", "h/12"): 5, ("mine", "2"): 7,
    }  # fmt: skip
    sums.end(11)
    left = read(sums.collect({}))
    assert left["rota_a_total", "h/11", "1"] == 2 and ("rota_gauge", "h/11") not in left


@rule("M85")
def test_a_process_that_does_not_answer_counts_with_what_it_sent_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = Sums()
    sums.note(11, ONE)
    monkeypatch.setattr("rota.integrations.prometheus_sums.ANSWER_S", 0.05)
    seen = read(sums.collect({11: lambda: None}))
    assert seen == {("a_total", "1"): 2}


@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="--processes is for Linux")
@rule("M85", "M83")
def test_the_parent_sums_its_processes_also_one_that_was_killed(
    start_supervisor: StartSupervisor, database: str, connection: Connection, free_port: int
) -> None:
    supervisor = start_supervisor(
        database, 2, f"--health-port={free_port}", "--concurrency=1",
        app="tests.telemetry.telemetry_app:app",
    )  # fmt: skip
    supervisor.until_working(2)
    insert(connection, 6, job_type="work")
    insert(connection, 1, job_type="fail")
    done = ("rota_attempts_total", "work", "succeeded")
    failed = ("rota_attempts_total", "fail", "dead")
    eventually(lambda: [scrape(free_port).get(labels) for labels in (done, failed)] == [6, 1])
    seen = scrape(free_port)
    assert seen["rota_worker_processes", "app-1", rota.__version__] == 2
    assert ("rota_dead_jobs",) in seen  # of one of them
    assert ("shop_open_files", "1") in seen and ("shop_open_files", "2") in seen
    assert not [name for name in seen if name[0].endswith("_created")]

    insert(connection, 1, job_type="kill")
    eventually(lambda: "another starts" in supervisor.log)
    supervisor.until_working(2)
    insert(connection, 4, job_type="work")
    eventually(lambda: scrape(free_port).get(done) == 10)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait()[0] == 0, supervisor.log
