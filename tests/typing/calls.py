"""What a checker says of calls of which one definition makes two methods. `E:` names the errors of mypy and of basedpyright."""

from __future__ import annotations

from typing import assert_type

import psycopg

import rota
from rota import testing
from rota.kinds import mail

app = rota.App(lambda: "postgresql://h/d")

assert_type(app.cancel(1), rota.Status)
assert_type(app.cancel(key="invoice:1", job_type="invoice"), rota.Status)
assert_type(app.queues.list(), list[rota.records.QueueDepth])
assert_type(app.jobs.cancel_many(queue="mail"), rota.records.ActionResult)
app.cancel("1")  # E: arg-type | reportArgumentType
app.cancel(1, reason="late")  # E: call-arg | reportCallIssue
app.jobs.archive(1)  # E: call-arg | reportCallIssue
app.jobs.cancel_many(kue="mail")  # E: call-arg | reportCallIssue
app.queues.pause("mail", duration=None, why="a deploy", by="anna")


def mails(mailer: mail.Mailer) -> None:
    sent = mailer.send("hi", to="a@x.example", user_id=1, event="e", data={"n": 1}, delay="1m")
    assert_type(sent, rota.Enqueued)
    mailer.send("hi", to="a@x.example", user_id=1)  # E: call-arg | reportCallIssue
    mailer.send("hi", to="a@x.example", user_id=1, event="e", dta={})  # E: call-arg | reportCallIssue
    mailer.new("hi", to="a@x.example", user_id=1, event="e", data=1)  # E: arg-type | reportArgumentType
    mailer.send_many("hi", [mail.Recipient("a@x.example", 1)])  # E: call-arg | reportCallIssue


async def awaited() -> None:
    assert_type(await app.acancel(1), rota.Status)
    assert_type(await app.queues.alist(), list[rota.records.QueueDepth])
    app.acancel(1)  # E: unused-coroutine | reportUnusedCoroutine
    await app.cancel(1)  # E: misc | reportGeneralTypeIssues
    await app.acancel("1")  # E: arg-type | reportArgumentType


async def effects(ctx: rota.Context) -> None:
    def send(user: int, *, subject: str = "") -> str:
        return subject * user

    async def asend(user: int) -> bytes:
        return bytes(user)

    assert_type(ctx.effect("mail:7").call(send, 7, subject="hello"), str)
    assert_type(await ctx.effect("mail:7").call(asend, 7), bytes)
    ctx.effect("mail:7").call(asend, 7)  # E: unused-coroutine | reportUnusedCoroutine
    ctx.effect("mail:7").call(send, "7")  # E: call-overload | reportArgumentType, reportCallIssue


def either(plain: psycopg.Connection, own: psycopg.AsyncConnection) -> None:
    app.cancel(1, connection=plain)
    app.cancel(1, connection=3)  # E: arg-type | reportArgumentType
    app.cancel(1, connection=own)  # one definition takes both kinds: the call itself refuses it


def url(harness: testing.Harness, connection: psycopg.Connection) -> None:
    assert_type(harness.url, str)
    with psycopg.connect(harness.url): ...
