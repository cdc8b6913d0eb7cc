import re
from datetime import UTC, datetime, timedelta

from fastapi.testclient import TestClient
from shop.database import Sales, open_session
from shop.jobs import update_sales, weekly_report
from shop.queue import hooks, mailer

from rota.kinds import mail
from rota.testing import Harness


def test_a_sign_up_commits_all_that_follows(rota_test: Harness, site: TestClient) -> None:
    hooks.put("crm", "https://crm.example/hooks", events=["user.*"])
    answer = site.post("/users", json={"email": "ada@shop.example", "name": "Ada"})
    user = answer.json()["id"]
    monday = rota_test.enqueued(weekly_report, user_id=user).payload["monday"]
    assert datetime.fromisoformat(monday).weekday() == 0
    rota_test.enqueued("webhook", event="user.created")
    with mail.outbox(mailer) as sent:
        rota_test.perform(rota_test.enqueued("mail", template="welcome").id)
    assert [message["Subject"] for message in sent] == ["Welcome, Ada"]


def test_a_sign_up_that_fails_leaves_nothing(
    rota_test: Harness, site: TestClient, ada: int
) -> None:
    with rota_test.expect_enqueued("mail") as first:
        site.post("/users", json={"email": "bo@shop.example", "name": "Bo"})
    again = site.post("/users", json={"email": "bo@shop.example", "name": "Bo"})
    assert again.status_code == 409
    for form in ({"email": "nobody", "name": "Bo"}, {"email": "a@b.example", "name": "a\0"}):
        assert site.post("/users", json=form).status_code == 422
    mails = [job.id for job in rota_test.all_enqueued("mail")]
    assert mails[-1] == first.job.id


def test_purchases_share_one_update_of_the_sales(
    rota_test: Harness, site: TestClient, ada: int
) -> None:
    for cents in (1_000, 2_500):
        assert site.post("/orders", json={"user_id": ada, "cents": cents}).status_code == 201
    assert len(rota_test.all_enqueued("mail.urgent", template="order")) == 2
    done = rota_test.perform(rota_test.enqueued(update_sales).id)
    assert done.result == {"orders": 2, "cents": 3_500}
    with open_session() as session:
        assert session.query(Sales).one().cents == 3_500
    assert site.post("/orders", json={"user_id": 99, "cents": 1}).status_code == 404


def test_an_export_is_made_once_and_downloaded(
    rota_test: Harness, site: TestClient, ada: int
) -> None:
    for cents in range(1, 4):
        site.post("/orders", json={"user_id": ada, "cents": cents})
    today = datetime.now(UTC).date()
    ask = f"/exports?first={today - timedelta(days=1)}&last={today}"
    first, second = (site.post(ask, follow_redirects=False) for _ in range(2))
    page = first.headers["location"]
    assert page == second.headers["location"]
    assert "queued" in site.get(page).text
    with mail.outbox(mailer):
        rota_test.drain()
    link = re.search('href="([^"]+)"', site.get(page).text)
    assert link is not None
    lines = site.get(link[1].replace("&amp;", "&")).text.splitlines()
    assert lines[0] == "order,day,cents,email"
    assert len(lines) == 4
    assert site.get(link[1].partition("?")[0]).status_code == 403
    assert site.get("/exports/99").status_code == 404
