"""dashboard.md: its sites run, and `rota web`."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.rows import TupleRow

from tests.docs.reader import Reader, read_page
from tests.support.cli import SHOP, CommandLine
from tests.support.server import PostgresServer, unused_port
from tests.support.wait import eventually

pytestmark = [pytest.mark.system, pytest.mark.slow]

FLASK = """
import site_flask
client = site_flask.site.test_client()
answer = client.get("/admin/jobs/queues", environ_overrides={"REMOTE_ADDR": "127.0.0.1"})
assert answer.status_code == 200 and b'href="/admin/jobs/dead"' in answer.data, answer.data
assert client.get("/admin/jobs/", environ_overrides={"REMOTE_ADDR": "192.0.2.1"}).status_code == 403
"""
FASTAPI = """
import site_fastapi
from fastapi.testclient import TestClient
assert TestClient(site_fastapi.api).get("/admin/jobs/").status_code == 403

async def signed_in(scope, receive, send):
    await site_fastapi.api(scope | {"session": {"user": "ann"}}, receive, send)

client = TestClient(signed_in)
answer = client.get("/admin/jobs/queues")
assert answer.status_code == 200 and 'href="/admin/jobs/dead"' in answer.text, answer.text
"""
DJANGO = """
import django
from django.conf import settings
from django.urls import resolve, reverse
apps = ["admin", "auth", "contenttypes", "sessions", "messages"]
settings.configure(
    INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "rota.integrations.django"],
    ROOT_URLCONF="urls",
)
django.setup()
assert resolve("/admin/jobs/queues").func.__module__.startswith("rota.dashboard.")
assert reverse("admin:index") == "/admin/"
"""


def test_the_addresses_of_a_django_site_lead_to_the_dashboard_before_the_admin(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    with Reader(tmp_path, server, empty_database) as reader:
        reader.follow(read_page("dashboard.md", "In Django"))
        reader.write("try_django.py", DJANGO)
        reader.type("python try_django.py")


def test_the_sites_of_the_page_have_a_dashboard(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    page = read_page("dashboard.md", "In your site")
    with Reader(tmp_path, server, empty_database) as reader:
        reader.environment["ROTA_DATABASE_URL"] = empty_database
        reader.follow(page)
        reader.type("rota migrate")
        for name, text in (("try_flask.py", FLASK), ("try_fastapi.py", FASTAPI)):
            reader.write(name, text)
            reader.type(f"python {name}")


def test_rota_web_serves_this_machine_and_who_has_the_password(
    database: str, tmp_path: Path, connection: psycopg.Connection[TupleRow]
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    rota = CommandLine(tmp_path, ROTA_DATABASE_URL=database, ROTA_APP="shop:app")
    rota.ok("enqueue", "send_mail", "--payload", '{"user_id": 1}')
    assert rota("web", "--host", "0.0.0.0").error[1].startswith("set ROTA_WEB_TOKEN")
    form = {"id": 1, "why": "not wanted"}
    here = {"sec-fetch-site": "same-origin"}
    port = unused_port()
    url = f"http://127.0.0.1:{port}"
    with rota.start("web", "--port", str(port)):
        eventually(lambda: _is_served(url), what="it serves")
        assert "send_mail" in httpx.get(f"{url}/jobs").text
        assert httpx.post(f"{url}/jobs/cancel", data=form, headers=here).status_code == 403
    password = "a long enough password"
    rota.environment["ROTA_WEB_TOKEN"] = password
    with rota.start("web", "--port", str(port)):
        eventually(lambda: _is_served(url), what="it serves")
        assert httpx.get(f"{url}/jobs").headers["www-authenticate"].startswith("Basic")
        assert httpx.get(f"{url}/jobs", auth=("ann", "another password")).status_code == 401
        done = httpx.post(f"{url}/jobs/cancel", data=form, headers=here, auth=("ann", password))
        assert done.status_code == 303
    [row] = connection.execute("select by, why from rota.action where verb = 'cancel'").fetchall()
    assert row == ("ann", "not wanted")
    with rota.start("web", "--port", str(port), "--read-only"):
        eventually(lambda: _is_served(url), what="it serves")
        refused = httpx.post(f"{url}/jobs/archive", data=form, headers=here, auth=("a", password))
        assert refused.status_code == 403 and "may look" in refused.text
    rota.environment["ROTA_WEB_TOKEN"] = "short"
    assert "16 characters" in rota("web").error[1]


def _is_served(url: str) -> bool:
    try:
        return httpx.get(url).status_code in (200, 401)
    except httpx.TransportError:
        return False


def test_the_verbs_of_the_page_are_there() -> None:
    from rota.dashboard import VERBS

    said = re.findall(r"frozenset\(\{([^}]*)\}", read_page("dashboard.md"))
    assert {one.strip(' "') for text in said for one in text.split(",")} <= VERBS
