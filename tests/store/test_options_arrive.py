"""Each option of one job arrives on every way by which a job comes to the table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota.declare.options import UsingOptions
from tests.store.work import Connection
from tests.support.rules import rule

Mail = rota.JobType[[int], [int], None]

VALUES: dict[str, tuple[Any, str, Any]] = {
    "priority": (7, "priority", 7),
    "queue": ("email", "queue", "email"),
    "max_attempts": (3, "max_attempts", 3),
    "timeout": ("2m", "timeout_s", 120.0),
    "expires": ("1h", "expires", timedelta(hours=1)),
    "key": ("mine", "idempotency_key", "mine"),
    "group_key": ("g", "group_key", "g"),
    "group_capacity": (2, "group_capacity", 2),
    "meta": ({"a": 1}, "meta", {"a": 1}),
}
"""For each option a value, and what the job then says where."""
OTHERS = {"run_at", "delay", "on_duplicate", "connection"}
"""What says when and how the job comes, and nothing of it afterwards."""


@pytest.fixture
def mail(app: rota.App) -> Mail:
    @app.job("mail", unique=rota.Unique(on_duplicate="replace"))
    def mail(user: int) -> None: ...

    app.sync()
    return mail


def singly(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    return mail.using(**options).enqueue(1).id


def in_bulk(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    return app.enqueue_many([mail.using(**options).new(1), mail.new(2)])[0].id


def by_name(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    return app.enqueue("mail", {"user": 1}, **options).id


def by_statement(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    text, values = mail.using(**options).new(1).statement("pyformat")
    row = connection.execute(text.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def requeued(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    id_ = singly(app, mail, connection, options)
    app.jobs.discard(id_)
    return app.retry(id_).id


def requeued_with_another_payload(
    app: rota.App, mail: Mail, connection: Connection, options: Any
) -> int:
    id_ = singly(app, mail, connection, options)
    app.jobs.discard(id_)
    return app.retry(id_, payload={"user": 2}).id


def in_place_of_another(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    options = {"key": "mine", **options}
    mail.using(key="mine").enqueue(2)
    replaced = mail.using(**options).enqueue(1)
    assert replaced.change == "replaced"
    return replaced.id


def from_a_schedule(app: rota.App, mail: Mail, connection: Connection, options: Any) -> int:
    app.schedules.put("s", None, mail.using(**options).new(1))
    return app.schedules.trigger("s")


@rule("M10", "M15", "M44")
@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize(
    "way",
    [
        singly, in_bulk, by_name, by_statement, requeued, requeued_with_another_payload,
        in_place_of_another, from_a_schedule,
    ],
)  # fmt: skip
def test_an_option_arrives(
    app: rota.App, mail: Mail, shared: Connection, way: Callable[..., int], option: str
) -> None:
    assert set(UsingOptions.__annotations__) == VALUES.keys() | OTHERS
    value, name, expected = VALUES[option]
    options = {option: value} | ({"group_key": "g"} if option == "group_capacity" else {})
    if way is in_place_of_another and option == "queue":
        pytest.skip("a holder keeps its queue: idempotency-keys.md says so")
    if way is from_a_schedule and option in ("timeout", "key", "group_capacity"):
        with pytest.raises(rota.UsageError, match=f"takes no {option}"):
            way(app, mail, shared, options)
        return
    job = app.get(way(app, mail, shared, options))
    if name == "expires":
        assert job.expires_at is not None
        assert abs(job.expires_at - job.run_at - expected) < timedelta(seconds=1)
    else:
        assert getattr(job, name) == expected
