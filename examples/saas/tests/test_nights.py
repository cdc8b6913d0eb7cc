import os
from datetime import UTC, date, datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from shop import jobs
from shop.database import Activity, Invoice, LoginSession, WeeklyReport, open_session
from shop.queue import FILES, mailer, reports

from rota.kinds import mail
from rota.testing import Harness

FRIDAY = datetime(2030, 3, 1, 12, tzinfo=UTC)
TABLES = [
    "shop_user",
    "shop_session",
    "shop_activity",
    "shop_sales",
    "shop_weekly_report",
    "shop_front_page",
]


def test_a_night_and_a_morning(rota_test: Harness, site: TestClient) -> None:
    rota_test.freeze(FRIDAY)
    user = site.post("/users", json={"email": "ada@shop.example", "name": "Ada"}).json()["id"]
    stale = FILES / "tmp" / "old.tmp"
    stale.parent.mkdir(exist_ok=True)
    stale.touch()
    os.utime(stale, (0, 0))
    with open_session() as session, session.begin():
        session.add(LoginSession(user_id=user, expires_at=FRIDAY - timedelta(hours=1)))
        session.add(LoginSession(user_id=user, expires_at=FRIDAY + timedelta(days=9)))
        session.add(Invoice(user_id=user, cents=990, due_on=FRIDAY.date() - timedelta(days=2)))
        session.add(Invoice(user_id=user, cents=990, due_on=FRIDAY.date() + timedelta(days=9)))
    with mail.outbox(mailer) as sent:
        for _ in range(21):  # in hours: a run is skipped while the one before waits
            rota_test.advance("1h")
            rota_test.drain()
    subjects = [message["Subject"] for message in sent]
    assert subjects == ["Welcome, Ada", "Invoice 1 is overdue"]
    assert not stale.exists()
    with open_session() as session:
        assert session.query(LoginSession).count() == 1
        assert session.query(Activity).one().report is not None
    assert reports.get(1).rows == 1
    assert site.get("/").json() == {"users": 1, "orders": 0}


def test_each_week_has_one_report_that_enqueues_the_next(
    rota_test: Harness, site: TestClient
) -> None:
    rota_test.freeze(FRIDAY)
    site.post("/users", json={"email": "ada@shop.example", "name": "Ada"})
    for days in ("3d", "4d", "3d"):
        rota_test.advance(days)
        with mail.outbox(mailer):
            rota_test.drain()
    with open_session() as session:
        weeks = [report.week for report in session.query(WeeklyReport).order_by("week")]
    assert weeks == [date(2030, 3, 4), date(2030, 3, 11)]
    assert rota_test.enqueued(jobs.weekly_report).payload["monday"] == "2030-03-18"


def upload(name: str, text: str) -> str:
    (FILES / "uploads").mkdir(exist_ok=True)
    (FILES / "uploads" / name).write_text(text)
    return name


def test_an_import_is_whole_or_nothing(rota_test: Harness) -> None:
    file = upload("contacts.csv", "email,name\nada@import.example,Ada\nnobody,Nobody\n")
    failed = rota_test.perform(jobs.import_contacts.new(file))
    assert failed.status == "dead"
    assert "line 3: 'nobody' is no address" in str(failed.error)
    with open_session() as session:
        assert session.query(jobs.User).count() == 0


def test_each_line_of_activity_is_in_one_report(
    rota_test: Harness, site: TestClient, ada: int
) -> None:
    rota_test.run_twice(jobs.activity_report.new(), tables=TABLES)
    site.post("/orders", json={"user_id": ada, "cents": 1})
    with mail.outbox(mailer):
        rota_test.perform(jobs.activity_report.new())
        rota_test.drain()
    runs = reports.list()
    assert sorted(run.rows for run in runs if run.rows) == [1, 1]


NEW = {
    "update_sales": jobs.update_sales.new(FRIDAY.date()),
    "weekly_report": jobs.weekly_report.new(1, date(2030, 3, 4)),
    "refresh_front_page": jobs.refresh_front_page.new(),
    "clean_up": jobs.clean_up.new(),
    "invoice_reminders": jobs.invoice_reminders.new(),
    "import_contacts": jobs.import_contacts.new("good.csv"),
}


@pytest.mark.parametrize("name", NEW)
def test_a_second_run_is_harmless(rota_test: Harness, ada: int, name: str) -> None:
    upload("good.csv", "email,name\nbo@import.example,Bo\n")
    rota_test.run_twice(NEW[name], tables=TABLES)
