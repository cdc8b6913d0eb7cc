"""The story: a Sunday evening in the shop, the night, and the Monday morning after."""

from __future__ import annotations

import os
import re
import smtplib
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from email.message import EmailMessage
from hashlib import sha256
from pathlib import Path

import httpx2
import psycopg

import rota
from story import stage
from story.figures import HELD, Facts, Promise, look
from story.processes import Outside
from story.theatre import Say, Theatre

EARLY, EVENING = 5, 20
REFUSED = 7
FIRST, BOUGHT = 4_900, range(1_000, 1_010)
"""Cents of the purchases."""


def play(say: Say, then: Callable[[list[Promise], Theatre], None], *, cron: bool) -> None:
    """Play it.

    Args:
        say: prints a line.
        then: is called before the curtain falls, with the promises and what their SELECTs found.
        cron: whether cron runs the jobs, not workers.

    Raises:
        StoryError: it cannot play on this server, or went wrong; no process is left behind.
    """
    base = rota.App().url
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        del os.environ[name]  # settings of another App
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(base, autocommit=True))
        url = stage.make_database(connection, base)
        say(
            "A shop from Sunday afternoon to Monday morning, played in half a minute: the\n"
            "clock of its database is moved from one event to the next.\n"
        )
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-demo-")))
        outside = stack.enter_context(Outside(url))
        os.environ |= {
            "ROTA_DATABASE_URL": url, "SHOP_FILES": str(files), "SMTP_URL": outside.smtp_url,
        }  # fmt: skip
        theatre = stack.enter_context(Theatre(url, files, outside, say, cron=cron))
        facts = Facts()
        for scene in (afternoon, evening, export, night, morning):
            scene(theatre, facts)
        then(look(theatre.watch, facts), theatre)


def afternoon(theatre: Theatre, facts: Facts) -> None:
    from shop.jobs import import_contacts  # noqa: PLC0415
    from shop.queue import hooks  # noqa: PLC0415

    secrets = {
        name: hooks.put(name, f"{theatre.outside.url}/{name}", events=[event], allow_private=True)
        for name, event in (("crm", "user.*"), ("partner", "order.*"))
    }
    theatre.tell(secrets=secrets, fails_first={"partner": 2})
    theatre.hire()
    theatre.hire()
    who = "cron runs `rota work --drain`" if theatre.cron else "two workers run"
    theatre.say(f"{stage.OLD_ORDERS:,} orders are there, and {who}")
    for number in range(EARLY):
        user = sign_up(theatre, f"early{number}@shop.example")
    facts.order = theatre.post("/orders", {"user_id": user, "cents": FIRST}).json()["id"]
    facts.imported = import_contacts.enqueue("contacts.csv").id
    facts.rolled_back = sign_up_and_roll_back(theatre)
    theatre.say(f"{EARLY} sign up, one buys; one more is rolled back; a bad file comes")
    theatre.work()
    theatre.say("the partner answers 503 twice: tried after 5 s and 5 min")
    theatre.go_to("18:00")


def sign_up(theatre: Theatre, email: str) -> int:
    return int(theatre.post("/users", {"email": email, "name": "Ada"}).json()["id"])


def sign_up_and_roll_back(theatre: Theatre) -> int:
    from shop.database import User, open_session  # noqa: PLC0415
    from shop.jobs import weekly_report  # noqa: PLC0415
    from shop.queue import hooks, mailer  # noqa: PLC0415

    with open_session() as session:
        user = User(email="regrets@shop.example", name="Ed")
        session.add(user)
        session.flush()
        data = {"name": user.name}
        mailer.send(
            "welcome", to=user.email, user_id=user.id, event="signup", data=data, connection=session
        )
        hooks.emit("user.created", {"user": user.id}, event_id="regrets", connection=session)
        weekly_report.using(session).enqueue(user.id, theatre.now.date())
        user_id = user.id
        session.rollback()
    return user_id


def evening(theatre: Theatre, facts: Facts) -> None:
    theatre.tell(answers={"crm": [503, 2.0]}, holds=HELD)
    facts.signed_up = EARLY + EVENING
    theatre.say("the CRM is in trouble: it answers 503, at first after 2 s")
    with ThreadPoolExecutor(4) as inline:
        for _ in range(4):
            inline.submit(sign_up_inline, theatre)
    users = [sign_up(theatre, f"new{number}@shop.example") for number in range(EVENING - 1)]
    theatre.tell(refuses=[users[REFUSED]], answers={"crm": [503, 0.1]})
    median = (
        "select percentile_cont(0.5) within group (order by ms) from outside.call where how = %s"
    )
    ours, theirs = theatre.value(median, "POST /users"), theatre.value(median, "inline")
    theatre.say(f"a sign-up takes {ours:.0f} ms; if it called mail and CRM itself {theirs:,.0f} ms")
    mails = "select count(*) from rota.jobs where job_type = 'mail' and finished_at is null"
    with theatre.at_work():
        theatre.wait(lambda: theatre.value(mails) == 0, "the other mails are out")
        sign_up(theatre, HELD)
        theatre.wait_for_held_mail()
        running = (
            "select id, locked_by from rota.jobs where payload->>'to' = %s and status = 'running'"
        )
        row = theatre.watch.execute(running, [HELD]).fetchone()
        assert row is not None
        facts.held, facts.killed = row
        theatre.say(
            f"worker {theatre.kill(facts.killed)} is killed when the mail server has a mail"
        )
    theatre.tell(holds=None)
    theatre.recover(facts.killed)
    theatre.work()
    unsent = "select count(*) from rota.jobs where job_type = 'webhook' and finished_at is null"
    theatre.say(
        f"the other mails are out; {theatre.value(unsent)} webhooks wait until the CRM works again"
    )
    theatre.go_to("19:00")
    for cents in BOUGHT:
        theatre.post("/orders", {"user_id": users[0], "cents": cents})
    facts.orders, facts.cents = 1 + len(BOUGHT), FIRST + sum(BOUGHT)
    theatre.work()
    theatre.say("10 purchases: mails and webhooks of the partner are out at once")
    theatre.go_to("20:00")


def sign_up_inline(theatre: Theatre) -> None:
    """What a sign-up costs that sends its mail and calls the CRM itself."""
    began = time.perf_counter()
    host, port = theatre.outside.smtp_url.removeprefix("smtp://").split(":")
    message = EmailMessage()
    message["From"], message["To"] = "hello@shop.example", "inline@shop.example"
    message["Subject"] = "Welcome"
    with smtplib.SMTP(host, int(port)) as smtp:
        smtp.send_message(message)
    body = {"type": "inline", "data": {"user": 0}}
    httpx2.post(f"{theatre.outside.url}/crm", json=body, timeout=10)
    ms = 1e3 * (time.perf_counter() - began)
    with psycopg.connect(theatre.url, autocommit=True) as connection:
        connection.execute("insert into outside.call values ('inline', %s)", [ms])


def export(theatre: Theatre, facts: Facts) -> None:
    from shop.queue import reports  # noqa: PLC0415

    days = f"first={theatre.now - timedelta(days=40):%F}&last={theatre.now:%F}"
    waiting = "select count(*) from pg_locks where relation = 'shop_user'::regclass and not granted"
    with psycopg.connect(theatre.url) as lock, theatre.at_work():
        lock.execute("lock table shop_user")  # a page reads it: none ends, however fast we are
        pages = [theatre.post(f"/exports?{days}").headers["location"] for _ in range(2)]
        facts.export = int(pages[0].rpartition("/")[2])
        theatre.say(f"export now, clicked twice: both lead to {pages[1]}")
        theatre.wait(lambda: theatre.value(waiting) == 4, "four pages are at work")
        lock.commit()
        lock.execute("lock table shop_user")  # behind those that waited, before the next ones
        theatre.wait(
            lambda: theatre.value(waiting) == 4 and reports.get(facts.export).pages_done,
            "some pages are done, and the next ones at work",
        )
        facts.exporter = theatre.value(
            "select min(locked_by) from rota.jobs"
            " where job_type = 'report.page' and status = 'running'"
        )
        done = reports.get(facts.export).progress
        theatre.say(f"{done} pages: worker {theatre.kill(facts.exporter)} is killed")
    theatre.recover(facts.exporter)
    theatre.work()
    theatre.wait(lambda: reports.get(facts.export).status == "ready", "the export is ready")
    _download(theatre, facts, pages[0])
    theatre.go_to("20:30")


def _download(theatre: Theatre, facts: Facts, page: str) -> None:
    link = re.search('href="([^"]+)"', theatre.get(page).text)
    assert link is not None, theatre.get(page).text
    content = theatre.get(link[1].replace("&amp;", "&")).content
    theatre.watch.execute(
        "insert into outside.download values (%s, %s, %s)",
        [facts.export, content.count(b"\n"), sha256(content).hexdigest()],
    )
    theatre.say(f"another one goes on; the file is downloaded: {len(content):,} bytes")


def night(theatre: Theatre, facts: Facts) -> None:
    theatre.tell(answers={})
    theatre.say("the CRM works again, but refuses one contact: 422")
    theatre.go_to("23:00")
    theatre.say("the deliveries that waited have arrived")
    theatre.go_to("06:00")
    theatre.say("tonight's report is written, sessions and files are cleaned up")
    theatre.go_to("09:00")
    facts.monday = theatre.now.replace(hour=7)
    theatre.say("the weekly reports are there, the reminders sent; somebody looks:")


def morning(theatre: Theatre, facts: Facts) -> None:
    theatre.show("jobs", "--status", "dead")
    find = "select id from rota.jobs where job_type = 'webhook' and status = 'dead'"
    facts.delivery = theatre.value(find)
    theatre.show("job", str(facts.delivery))
    theatre.tell(refuses=[])
    theatre.say("the CRM's people mend it; the log of the mail server has the mail")
    theatre.show("retry", str(facts.delivery), "--why", "they take it now")
    facts.effect = theatre.value("select key from rota.effects where status = 'uncertain'")
    theatre.show("effects", "resolve", facts.effect, "--done", "--why", "the server has it")
    theatre.show("retry", str(facts.held), "--why", "the mail is out")
    theatre.work()
