"""The site. What is slow, or calls somebody else, is enqueued in the request's transaction."""

import os
from datetime import UTC, date, datetime
from html import escape
from secrets import token_urlsafe
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Path, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import AfterValidator, BaseModel, EmailStr, Field
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from rota.dashboard import dashboard
from rota.kinds import report
from shop.database import Activity, FrontPage, Order, User, get_session
from shop.jobs import at_seven, next_monday, update_sales, weekly_report
from shop.queue import app, hooks, mailer, reports

web = FastAPI(title="Shop")
# All processes of the site sign with one secret; a random one is enough for a single process.
endpoints = report.Endpoints(reports, secret=os.environ.get("SHOP_SECRET") or token_urlsafe())
web.mount("/reports", endpoints.asgi)
# Of all jobs. This machine may look; authorize= says who else may, and who may act.
web.mount("/admin/jobs", dashboard(app).asgi)
Database = Annotated[Session, Depends(get_session)]


class SignUp(BaseModel):
    email: Annotated[EmailStr, AfterValidator(str.lower)]
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")]


@web.post("/users", status_code=201)
def sign_up(form: SignUp, database: Database) -> dict[str, int]:
    with database.begin():
        user = User(email=form.email, name=form.name)
        database.add(user)
        try:
            database.flush()  # the database gives the user its id
        except IntegrityError:
            raise HTTPException(409, "this address has signed up") from None
        mailer.send(
            "welcome",
            to=form.email,
            user_id=user.id,
            event="signup",
            data={"name": form.name},
            connection=database,
        )
        hooks.emit(
            "user.created", {"user": user.id}, event_id=f"user:{user.id}", connection=database
        )
        database.add(Activity(what="signed up", user_id=user.id))
        monday = next_monday(datetime.now(UTC).date())
        weekly_report.using(database, run_at=at_seven(monday)).enqueue(user.id, monday)
    return {"id": user.id}


class Purchase(BaseModel):
    user_id: Annotated[int, Field(ge=1, le=2**31 - 1)]
    cents: Annotated[int, Field(ge=1, le=100_000_000)]


@web.post("/orders", status_code=201)
def buy(form: Purchase, database: Database) -> dict[str, int]:
    with database.begin():
        user = database.get(User, form.user_id)
        if user is None:
            raise HTTPException(404, "there is no such user")
        order = Order(user_id=user.id, cents=form.cents)
        database.add(order)
        database.flush()
        mailer.send(
            "order",
            to=user.email,
            user_id=user.id,
            event=f"order:{order.id}",
            urgent=True,
            data={"order": order.id, "cents": order.cents},
            connection=database,
        )
        hooks.emit(
            "order.paid",
            {"order": order.id, "cents": order.cents},
            event_id=f"order:{order.id}",
            connection=database,
        )
        database.add(Activity(what="bought", user_id=user.id))
        update_sales.using(database).enqueue(order.day)
    return {"id": order.id}


@web.get("/")
def front_page(database: Database) -> dict[str, int]:
    page = database.get(FrontPage, 1)
    return {"users": page.users, "orders": page.orders} if page else {"users": 0, "orders": 0}


@web.post("/exports")
def export_now(first: date, last: date, database: Database) -> Response:
    """A second click finds the run of the first."""
    if first > last:
        raise HTTPException(422, "the first day is after the last")
    with database.begin():
        params = {"first": first.isoformat(), "last": last.isoformat()}
        run = reports.request("orders", params, by="support", connection=database)
    return RedirectResponse(f"/exports/{run.id}", 303)


@web.get("/exports/{id}")
def show_export(id: Annotated[int, Path(ge=1, le=2**31 - 1)]) -> HTMLResponse:
    """The page of progress; it asks again each second until the file is there."""
    try:
        run = reports.get(id)
    except report.FileGone as error:
        raise HTTPException(404, str(error)) from None
    link = again = ""
    if run.status == "ready":
        link = f'<a href="/reports{escape(endpoints.link(run))}">download</a>'
    elif run.status in ("queued", "running"):
        again = '<meta http-equiv="refresh" content="1">'
    page = f"<!doctype html><title>Export</title>{again}<p>{escape(run.progress)} {link}</p>"
    return HTMLResponse(page)
