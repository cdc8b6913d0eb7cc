from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache

import rota
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.orm import Session

app = rota.App()
tenant: ContextVar[str] = ContextVar("tenant")
session: ContextVar[Session] = ContextVar("session")


@contextmanager
def enter(name: str) -> Iterator[Session]:
    """Work for a tenant, in a request or a job: a session on its schema, committed at the end."""
    with Session(find_engine(app.url)) as opened, opened.begin():
        opened.execute(text("select set_config('search_path', :name, true)"), {"name": name})
        tokens = tenant.set(name), session.set(opened)
        try:
            yield opened
        finally:
            tenant.reset(tokens[0])
            session.reset(tokens[1])


@cache
def find_engine(url: str) -> Engine:
    return create_engine(make_url(url).set(drivername="postgresql+psycopg"), pool_pre_ping=True)


@app.enqueue_middleware
@contextmanager
def carry_tenant(jobs: Sequence[rota.records.NewJob]) -> Iterator[Mapping[str, str]]:
    yield {"tenant": tenant.get()}


@app.middleware
@contextmanager
def enter_tenant(ctx: rota.Context) -> Iterator[None]:
    name = ctx.job.meta.get("tenant")  # none: the job of a schedule
    with nullcontext() if name is None else enter(name):
        yield


@app.job(transactional=True)
def confirm(order: int) -> str:
    query = text("update orders set confirmed = true where id = :id returning product")
    return f"{tenant.get()}: {session.get().scalar(query, {'id': order})}"


def place_order(name: str, product: str) -> int:
    """What a request does, whose user belongs to the tenant `name`."""
    with enter(name) as opened:
        query = text("insert into orders (product) values (:product) returning id")
        return confirm.using(opened).enqueue(opened.scalar(query, {"product": product})).id
