"""What the pages of docs/understand suppose, and what is true after them."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from django.db import connections, transaction
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.ext.automap import automap_base
from sqlalchemy.orm import Session

import rota
from rota.testing import run_twice
from tests.docs.reader import Reader
from tests.docs.supposed import follows
from tests.support.django_site import django_database
from tests.support.web import serving


@follows("batches.md")
def bind_pages(reader: Reader) -> None:
    pages: list[tuple[int, int]] = []
    bound: list[tuple[int, int, int]] = []
    reader.names.update({"PAGES": pages, "BOUND": bound})
    reader.follow_to("## Results of the members")
    assert reader.printed == "0 of 100\n"
    reader.app.drain()
    assert (len(set(pages)), bound) == (100, [(7, 100, 0)])
    reader.follow_to("## Show and cancel batches")
    reader.app.drain()
    assert [job.result for job in reader.app.find(job_type="add-up")] == [0 + 1 + 4 + 9]
    assert pages[-2:] == [(8, 1), (8, 2)]
    assert reader.app.find(job_type="measure")[0].result == ((3**2) ** 2) ** 2


@follows("effects.md", is_nightly=True)
def send_once(reader: Reader) -> None:
    with serving() as provider:
        provider.headers["Message-ID"] = "m-7"
        reader.names["PROVIDER"] = provider.url
        reader.follow_to("## When an effect is uncertain")
        welcome = reader.names["welcome"]
        for _ in range(2):
            welcome.enqueue(7)
            assert reader.app.drain().succeeded == 1
        run_twice(reader.names["goodbye"].new(7))
        assert [asked.body for asked in provider.asked] == [b"to=7"] * 2
        assert provider.asked[0].headers["idempotency-key"] == "welcome_email:user:7"
    sent: list[int] = []

    def send_without_an_answer(user: int, key: str) -> str:
        sent.append(user)
        if sent.count(user) == 1:
            raise RuntimeError("there is no answer")
        return "m-8"

    # The commands of the page settle what is uncertain, of the jobs 42 and 43.
    reader.names["send_welcome"] = send_without_an_answer
    reader.ask("select setval('rota.job_id_seq', 41)")
    assert [welcome.enqueue(user).id for user in (42, 43)] == [42, 43]
    assert reader.app.drain().failed == 2
    reader.follow_rest()
    assert reader.app.drain().succeeded == 1
    assert sent == [42, 43, 43]


@follows("cpu-work.md", "expiry-and-cancelling.md")
def make_jobs(reader: Reader) -> None:
    reader.names["jobs"] = rota.Jobs()


@follows("idempotency-keys.md")
def make_a_key(reader: Reader) -> None:
    reader.follow_rest()
    assert reader.app.get(1).idempotency_key == "welcome:42:short"


@follows("idempotent-handlers.md")
def run_twice_without_harm(reader: Reader) -> None:
    reader.ask("create table public.invoice (customer int)")
    reader.names["FOLDER"] = reader.place
    reader.follow_rest()
    run_twice(reader.names["bill"].new(812), tables=["invoice"])
    run_twice(reader.names["sales_report"].new("2026-01-14"))
    assert (reader.place / "sales-2026-01-14.csv").read_text() == "day,sum\n"


@follows("jobs-and-workers.md")
def greet(reader: Reader) -> None:
    reader.follow_rest()
    assert reader.app.get(1).result == "hello Ada"


@follows("leases-and-timeouts.md")
def stop_in_good_time(reader: Reader) -> None:
    saved: list[str] = []

    async def read_rows(file: str) -> None:
        raise TimeoutError

    async def save_place(file: str) -> None:
        saved.append(file)

    reader.names.update(read_rows=read_rows, save_place=save_place)
    reader.follow_rest()
    job = reader.names["import_rows"].enqueue("may.csv")
    reader.app.drain()
    assert (reader.app.get(job.id).status, saved) == ("queued", ["may.csv"])


@follows("ordered-groups.md")
def halt_groups(reader: Reader) -> None:
    reader.follow_to("Groups do not wait for each other")
    assert [(group.group_key, group.waiting) for group in reader.app.groups.list()] == [
        ("invoice:7", 3),
        ("invoice:8", 1),
    ]
    assert reader.app.drain().succeeded == 4
    reader.ask(
        "insert into rota.job (job_type, status, failed_at, group_key, in_lane) "
        "select 'book_invoice', 'dead', now(), 'invoice:' || n, true from generate_series(1, 2) n"
    )
    reader.left = reader.left.replace("retry 1 ", "retry 5 ").replace("archive 1 ", "archive 6 ")


@follows("payload-versions.md")
def convert_a_payload(reader: Reader) -> None:
    reader.names["Any"] = Any
    reader.follow_rest()
    reader.app.sync()
    reader.ask(
        "insert into rota.job (job_type, payload, payload_version) values "
        """('charge', '{"order": 7, "euros": 1.5}', 1)"""
    )
    reader.app.drain()
    assert reader.app.get(1).result == 150


@follows("steps.md")
def start_over(reader: Reader) -> None:
    reader.follow_to("In an async handler")
    reader.ask("select setval('rota.job_id_seq', 6)")
    charge = reader.names["charge"]

    def refuse(order: int, reservation: str) -> int:
        raise rota.Dead("no such account")

    reader.names["charge"] = refuse
    reader.names["checkout"].enqueue(7)
    assert reader.app.drain().dead == 1
    reader.names["charge"] = charge
    reader.follow_rest()
    assert reader.app.drain().succeeded == 1
    run_twice(reader.names["checkout"].new(7))


@follows("transactions.md")
def sign_up(reader: Reader) -> None:
    app, names, url = rota.App(), reader.names, make_url(reader.url)

    @app.job("welcome")
    def welcome(user_id: int) -> None: ...

    reader.ask("create table public.users (id serial primary key, name text)")
    reader.follow_to("## Require a transaction")
    engine = create_engine(url.set(drivername="postgresql+psycopg"))
    tables = automap_base()
    tables.prepare(autoload_with=engine, schema="public")
    names.update({"User": tables.classes.users, "welcome": welcome})

    def count() -> int:
        [(users, jobs)] = reader.ask(
            "select (select count(*) from public.users), (select count(*) from rota.job)"
        )
        assert users == jobs
        return int(users)

    with Session(engine) as session:
        names["sign_up"](session, "Ada")
        session.rollback()
        assert count() == 0
        names["sign_up"](session, "Ada")
        session.commit()
    engine.dispose()

    async def sign_up_async() -> None:
        for driver in ("asyncpg", "psycopg"):
            engine = create_async_engine(url.set(drivername=f"postgresql+{driver}"))
            async with AsyncSession(engine) as session:
                await names["sign_up_async"](session, "Ada")
            await engine.dispose()
        async with asyncpg.create_pool(reader.url, min_size=1) as pool:
            await names["sign_up_asyncpg"](pool, "Ada")

    asyncio.run(sign_up_async())
    assert count() == 4
    with django_database(reader.url) as alias:
        default, connections["default"] = connections["default"], connections[alias]
        try:
            names["sign_up_django"]("Ada")
            with transaction.atomic():
                names["sign_up_django"]("Ada")
                transaction.set_rollback(True)
        finally:
            connections[alias].close()
            connections["default"] = default
    assert count() == 5
    app.close()
    reader.follow_rest()
    with pytest.raises(rota.UsageError, match="transactional"):
        names["charge"].enqueue(7)


@follows("waiting.md")
def wait_for_pages(reader: Reader) -> None:
    reader.follow_rest()
    reader.app.drain()
    job = reader.app.get(1)
    assert (job.result, job.attempts) == (["page 1", "page 2", "page 3"], 1)
