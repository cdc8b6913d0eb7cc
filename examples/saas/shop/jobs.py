"""The shop's own jobs, and when they run. `rota work` imports this module."""

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Select, delete, func, select
from sqlalchemy.dialects.postgresql import insert

import rota
from shop.database import (
    Activity,
    FrontPage,
    Invoice,
    LoginSession,
    Order,
    Sales,
    User,
    open_session,
)
from shop.queue import FILES, app, mailer, reports

PAGE = 250
"""Rows of a page of a report."""


# After a purchase, and each Monday


@app.job(
    priority=-10,
    unique=rota.Unique(lambda day: day.isoformat(), scope="pending"),
    ordered="sales:{day}",  # one at a time: the later one has the last word
)
def update_sales(day: date) -> dict[str, int]:
    """Add up what was sold on a day. Purchases that come before it begins share one run."""
    with open_session() as session, session.begin():
        totals = select(func.count(), func.coalesce(func.sum(Order.cents), 0))
        orders, cents = session.execute(totals.where(Order.day == day)).one()
        values = {"orders": orders, "cents": cents}
        put = insert(Sales).values(day=day, **values)
        session.execute(put.on_conflict_do_update(index_elements=["day"], set_=values))
    return {"orders": orders, "cents": int(cents)}


def next_monday(day: date) -> date:
    return day + timedelta(days=7 - day.weekday())


def at_seven(day: date) -> datetime:
    return datetime.combine(day, time(7), UTC)


@app.job(unique="{user_id}:{monday}", takes_context=True)
def weekly_report(ctx: rota.Context, user_id: int, monday: date) -> None:
    """Write the report of the week before `monday`, and enqueue the next one: row, job and success
    of this one are one transaction, so the chain neither breaks nor forks."""
    with ctx.transaction() as connection:
        written = connection.execute(
            "insert into shop_weekly_report (user_id, week, orders)"
            " select u.id, %(monday)s, count(o.id) from shop_user u left join shop_order o"
            " on o.user_id = u.id and o.day >= %(monday)s::date - 7 and o.day < %(monday)s"
            " where u.id = %(user)s group by u.id",
            {"user": user_id, "monday": monday},
        )
        if not written.rowcount:
            return  # the user has left, and so the chain ends
        following = next_monday(monday)
        again = weekly_report.using(connection, run_at=at_seven(following))
        again.enqueue(user_id, following)


# What runs by the clock, in UTC


@app.schedule("refresh-front-page", "*/10 * * * *")
@app.job(priority=-20, history="failures")
def refresh_front_page() -> None:
    """Count for the front page, which reads one row."""
    with open_session() as session, session.begin():
        values = {
            "users": session.scalar(select(func.count()).select_from(User)),
            "orders": session.scalar(select(func.count()).select_from(Order)),
        }
        put = insert(FrontPage).values(id=1, **values)
        session.execute(put.on_conflict_do_update(index_elements=["id"], set_=values))


@app.schedule("clean-up", "0 2 * * *")
@app.job(takes_context=True)
def clean_up(ctx: rota.Context) -> dict[str, int]:
    """Delete expired sessions, and temporary files that nobody has changed for a day."""
    now = ctx.job.scheduled_for or ctx.job.created_at
    with open_session() as session, session.begin():
        expired = delete(LoginSession).where(LoginSession.expires_at < now)
        sessions = session.scalars(expired.returning(LoginSession.id)).all()
    kept_from = (now - timedelta(days=1)).timestamp()
    stale = [file for file in (FILES / "tmp").glob("*") if file.stat().st_mtime < kept_from]
    for file in stale:
        file.unlink(missing_ok=True)
    return {"sessions": len(sessions), "files": len(stale)}


@app.schedule("invoice-reminders", "0 8 * * *")
@app.job(takes_context=True)
def invoice_reminders(ctx: rota.Context) -> int:
    """Remind of each overdue invoice: all mails of a morning are enqueued, or none. A second run
    enqueues none of them again, because the event is the invoice and the day."""
    day = (ctx.job.scheduled_for or ctx.job.created_at).date()
    with open_session() as session, session.begin():
        overdue = select(Invoice, User).join(User).where(Invoice.due_on < day, ~Invoice.paid)
        rows = session.execute(overdue).all()
        for invoice, user in rows:
            mailer.send(
                "reminder",
                to=user.email,
                user_id=user.id,
                event=f"invoice:{invoice.id}:{day}",
                data={"invoice": invoice.id, "cents": invoice.cents},
                connection=session,
            )
    return len(rows)


@app.schedule("activity-report", "30 23 * * *")
@app.job(takes_context=True)
def activity_report(ctx: rota.Context) -> int:
    """Ask for a report of all lines that are in none yet. Lines, report and success are one
    transaction: a run that dies asks for nothing, and none asks for the same lines twice."""
    day = (ctx.job.scheduled_for or ctx.job.created_at).date()
    with ctx.transaction() as connection:
        connection.execute(
            "update shop_activity set report = %s where report is null", [ctx.job.id]
        )
        params = {"report": ctx.job.id, "day": day.isoformat()}
        return reports.request("activity", params, connection=connection).id


# Files for people


@reports.report("activity", columns=["id", "what", "user_id"])
class ActivityReport:
    @staticmethod
    def ranges(params: dict[str, Any]) -> list[list[int]]:
        with open_session() as session:
            return split(session.scalars(lines_of(params, Activity.id)).all())

    @staticmethod
    def rows(params: dict[str, Any], range: list[int]) -> Iterator[tuple[Any, ...]]:
        lines = lines_of(params, Activity.id, Activity.what, Activity.user_id)
        yield from stream(lines.where(Activity.id.between(range[0], range[1])))


def lines_of(params: dict[str, Any], *columns: Any) -> Select[Any]:
    return select(*columns).where(Activity.report == params["report"]).order_by(Activity.id)


@reports.report("orders", columns=["order", "day", "cents", "email"])
class OrdersReport:
    """The orders from one day to another, for the button "export now"."""

    @staticmethod
    def ranges(params: dict[str, Any]) -> list[list[int]]:
        with open_session() as session:
            return split(session.scalars(orders_of(params, Order.id)).all())

    @staticmethod
    def rows(params: dict[str, Any], range: list[int]) -> Iterator[tuple[Any, ...]]:
        orders = orders_of(params, Order.id, Order.day, Order.cents, User.email).join(User)
        yield from stream(orders.where(Order.id.between(range[0], range[1])))


def orders_of(params: dict[str, Any], *columns: Any) -> Select[Any]:
    first, last = (date.fromisoformat(params[name]) for name in ("first", "last"))
    return select(*columns).where(Order.day.between(first, last)).order_by(Order.id)


def stream(query: Select[Any]) -> Iterator[tuple[Any, ...]]:
    """Read rows by a cursor of the server, a hundred at a time."""
    with open_session() as session:
        yield from map(tuple, session.execute(query.execution_options(yield_per=100)))


def split(ids: Sequence[int]) -> list[list[int]]:
    """Return the first and the last id of each page."""
    pages = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
    return [[page[0], page[-1]] for page in pages]


@app.job(takes_context=True)
def import_contacts(ctx: rota.Context, file: str) -> None:
    """Create a user for each line of an uploaded CSV file: all of them, or none. A file that is
    wrong does not get better by a retry: the job is dead at once, and says where."""
    path = FILES / "uploads" / Path(file).name  # never a path that somebody made up
    with ctx.transaction() as connection, path.open(newline="", encoding="utf-8-sig") as lines:
        for number, line in enumerate(csv.DictReader(lines), start=2):
            email, name = line.get("email") or "", line.get("name") or ""
            if "@" not in email:
                raise rota.Dead(f"{path.name}, line {number}: {email!r} is no address")
            connection.execute(
                "insert into shop_user (email, name) values (%s, %s) on conflict do nothing",
                [email.lower(), name],
            )
