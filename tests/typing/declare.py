"""What a checker says of declarations, and of a handler that is called as it was written. The comments are as in `enqueue.py`."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date
from typing import Any, assert_type

import rota

jobs = rota.Jobs()
app = rota.App(jobs=[jobs, "myproject.billing:jobs"])


@jobs.job("send_mail")
async def send_mail(user_id: int, template: str = "welcome") -> dict[str, str]:
    return {"template": f"{template}:{user_id}"}


@jobs.job("rebuild_report", takes_context=True)
def rebuild_report(ctx: rota.Context, day: date) -> int:
    return day.day


@app.job("clean_up", queue="slow", timeout="10m", retry=rota.Delays("1m", "5m"), retry_on=(OSError,))
def clean_up(older_than_days: int) -> str:
    return "clean"


@app.job("poll", takes_context=True, takes_contxt=True)  # E: untyped-decorator, call-overload | reportCallIssue, reportUntypedFunctionDecorator
def misspelt(ctx: rota.Context) -> None: ...


@jobs.job("no_context", takes_context=True)  # E: arg-type | reportArgumentType
def no_context(day: date) -> None: ...


@jobs.job("priority", priority="high")  # E: call-overload, untyped-decorator | reportArgumentType
def wrong_option(day: date) -> None: ...


@jobs.job("prio", prio=5)  # E: call-overload, untyped-decorator | reportCallIssue, reportUntypedFunctionDecorator
def unknown_option(day: date) -> None: ...


@app.job("process", process="thread")  # E: call-overload, untyped-decorator | reportArgumentType
def wrong_choice(day: date) -> None: ...


jobs.schedule("nightly", "0 2 * * *", clean_up.new(30), overlap="sometimes")  # E: call-overload | reportArgumentType, reportCallIssue
jobs.schedule("nightly", "0 2 * * *", clean_up.new(30), zone="UTC")  # E: call-overload | reportCallIssue


@jobs.job
def nameless(day: date) -> None: ...


nameless.enqueue(30)  # E: arg-type | reportArgumentType


# The decorated name runs the function, and keeps its type: that of a coroutine when it is async.
assert_type(clean_up(30), str)
assert_type(rebuild_report(no_context, date(2026, 1, 14)), int)  # E: arg-type | reportArgumentType
clean_up("30")  # E: arg-type | reportArgumentType
clean_up()  # E: call-arg | reportCallIssue
send_mail(1)  # E: unused-coroutine | reportUnusedCoroutine
running: Coroutine[Any, Any, dict[str, str]] = send_mail(1)
length: int = send_mail(1)  # E: assignment | reportAssignmentType

# `.func` is the function as written.
assert_type(clean_up.func(30), str)
clean_up.func("30")  # E: arg-type | reportArgumentType
rebuild_report.func(date(2026, 1, 14))  # E: call-arg, arg-type | reportCallIssue
reveal_type(clean_up.func)  # R: (older_than_days: int) -> str
reveal_type(send_mail.func)  # R: (user_id: int, template: str =
reveal_type(send_mail.func)  # R: dict[str, str]]
reveal_type(rebuild_report.func)  # R: day: date
reveal_type(clean_up.enqueue)  # R: (older_than_days: int)
assert_type(clean_up.enqueue(older_than_days=30), rota.Enqueued)
clean_up.enqueue(older_than_days="30")  # E: arg-type | reportArgumentType



def report_death(event: rota.events.JobDead) -> None: ...


# Listeners get the event that they asked for.
app.on(rota.events.JobDead, report_death)
app.on(rota.events.JobSucceeded, report_death)  # E: arg-type | reportArgumentType
app.run(queues=20)  # E: arg-type | reportArgumentType
assert_type(app.find(status="dead"), list[rota.Job])
app.find(state="dead")  # E: call-arg | reportCallIssue

# What is rarer stands in namespaces.
assert_type(app.jobs.discard_many(job_type="t"), rota.records.ActionResult)
assert_type(app.jobs.log(since="2h"), list[rota.records.ActionRecord])
assert_type(app.schedules.list(), list[rota.records.Schedule])
assert_type(app.schedules.put("nightly", None, clean_up.new(30), catch_up="all"), rota.records.Schedule)
app.schedules.put("nightly", None, clean_up.new(30), overlap="sometimes")  # E: arg-type | reportArgumentType
assert_type(app.queues.list(), list[rota.records.QueueDepth])
assert_type(app.queues.pauses(), list[rota.records.Pause])
assert_type(app.alerts.list(), list[rota.records.AlertRecord])
assert_type(app.jobs.timeline(1).attempts, list[rota.records.AttemptRecord])


# With `chunk` a handler takes a list, and a job is one item of it.
@dataclass
class Doc:
    id: int


@jobs.job("index", chunk=rota.Chunk(100, wait="50ms"))
def index(docs: list[Doc]) -> list[bool]:
    return [doc.id > 0 for doc in docs]


@jobs.job("mails", chunk=100, takes_context=True, queue="mail")
async def mails(ctx: rota.Context, docs: list[Doc]) -> None:
    assert_type(ctx.items[0].job.id, int)


index.enqueue(Doc(1))
mails.new(Doc(1))
index.enqueue([Doc(1)])  # E: arg-type | reportArgumentType
index.enqueue("a")  # E: arg-type | reportArgumentType
assert_type(index([Doc(1)]), list[bool])


@jobs.job("one", chunk=100)  # E: arg-type | reportArgumentType
def one(doc: Doc) -> None: ...


# What takes one of few words.
status = rota.Status("dead")
app.find(status=status)
app.find(status="daed")  # E: arg-type | reportArgumentType
app.jobs.cancel_many(status="daed")  # E: arg-type | reportArgumentType
