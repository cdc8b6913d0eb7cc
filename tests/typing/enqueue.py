"""What a checker says of calls that enqueue. `E:` names the errors of mypy and of basedpyright, `R:` a part of the revealed type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import assert_type

import rota

jobs = rota.Jobs()


@jobs.job("send_mail", queue="email")
async def send_mail(user_id: int, template: str = "welcome") -> dict[str, str]:
    return {"template": f"{template}:{user_id}"}


@jobs.job("rebuild_report", takes_context=True)
def rebuild_report(ctx: rota.Context, day: date) -> None:
    ctx.raise_if_cancelled()


app = rota.App(jobs=[jobs])

# enqueue
send_mail.enqueue(1)
send_mail.enqueue(user_id=1, template="reset")
send_mail.enqueue("1")  # E: arg-type | reportArgumentType
send_mail.enqueue(user_id="1")  # E: arg-type | reportArgumentType
send_mail.enqueue()  # E: call-arg | reportCallIssue
send_mail.enqueue(1, "reset", 3)  # E: call-arg | reportCallIssue
send_mail.enqueue(user_id=1, tmplate="reset")  # E: call-arg | reportCallIssue
assert_type(send_mail.enqueue(1), rota.Enqueued)

# new
send_mail.new(1)
send_mail.new("1")  # E: arg-type | reportArgumentType
send_mail.new()  # E: call-arg | reportCallIssue
app.batch([send_mail.new(1)], on_failure="never")  # E: arg-type | reportArgumentType
assert_type(rebuild_report.new(date(2026, 1, 14)), rota.records.NewJob[None])
send_mail.new(1).using(prio=5)  # E: call-arg | reportCallIssue

# using
send_mail.using(priority=5, key="a", run_at=datetime(2026, 1, 1, tzinfo=UTC), expires="1h", meta={"by": "me"}).enqueue(1)
send_mail.using(priority=5).enqueue("1")  # E: arg-type | reportArgumentType
send_mail.using(priority=5).enqueue()  # E: call-arg | reportCallIssue
send_mail.using(priority="high")  # E: arg-type | reportArgumentType
send_mail.using(prio=5)  # E: call-arg | reportCallIssue
send_mail.using(delay=10)  # E: arg-type | reportArgumentType

# takes_context: the context is no argument of the job
rebuild_report.enqueue(date(2026, 1, 14))
rebuild_report.enqueue(day=date(2026, 1, 14))
rebuild_report.enqueue("2026-01-14")  # E: arg-type | reportArgumentType
rebuild_report.enqueue()  # E: call-arg | reportCallIssue
rebuild_report.new(ctx=None, day=date(2026, 1, 14))  # E: call-arg | reportCallIssue
rebuild_report.using(priority=5).new("2026-01-14")  # E: arg-type | reportArgumentType

# in bulk
send_mail.enqueue_many([{"user_id": 1}, {"user_id": 2}])
send_mail.enqueue_many([1, 2])  # E: list-item | reportArgumentType
assert_type(app.enqueue_many([send_mail.new(1), rebuild_report.new(date(2026, 1, 14))]), list[rota.Enqueued])
app.enqueue_many([send_mail])  # E: list-item | reportArgumentType
app.enqueue(send_mail)  # E: call-overload | reportArgumentType,reportCallIssue
assert_type(app.enqueue(send_mail.new(1)), rota.Enqueued)


async def asynchronous() -> None:
    assert_type(await send_mail.aenqueue(1), rota.Enqueued)
    await send_mail.aenqueue("1")  # E: arg-type | reportArgumentType
    await send_mail.aenqueue()  # E: call-arg | reportCallIssue
    await send_mail.using(priority=5).aenqueue("1")  # E: arg-type | reportArgumentType
    await rebuild_report.aenqueue("2026-01-14")  # E: arg-type | reportArgumentType
    await send_mail.aenqueue_many([1])  # E: list-item | reportArgumentType
    assert_type(await send_mail.aenqueue_many([{"user_id": 1}]), list[rota.Enqueued])
    send_mail.aenqueue(1)  # E: unused-coroutine | reportUnusedCoroutine


# An editor that hovers over them shows the names of the arguments.
reveal_type(send_mail.enqueue)  # R: (user_id: int, template: str =
reveal_type(send_mail.aenqueue)  # R: (user_id: int, template: str =
reveal_type(send_mail.new)  # R: (user_id: int, template: str =
reveal_type(send_mail.using(priority=5).enqueue)  # R: (user_id: int, template: str =
reveal_type(rebuild_report.enqueue)  # R: (day: date
reveal_type(rebuild_report.using(priority=5).new)  # R: (day: date
