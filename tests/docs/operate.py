"""What the pages of docs/operate suppose, and what is true after them."""

from __future__ import annotations

import importlib
import json
import re
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import msgspec
import psycopg
import pytest
from django.test import RequestFactory
from fastapi.testclient import TestClient
from psycopg.conninfo import make_conninfo

import rota
from rota.declare.secret import VARIABLE, make_key
from rota.model import scrub
from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level
from rota.store import ops
from rota.store.db import Database
from rota.store.migrate import migrate
from tests.docs.reader import Reader, read_page
from tests.docs.supposed import follows, make_database
from tests.support.django_site import django_database
from tests.support.pooler import Pooler, program
from tests.support.web import serving


@follows("concurrency-limits.md", "pausing.md")
def know_a_queue(reader: Reader) -> None:
    reader.ask("insert into rota.queue (name) values ('email')")


@follows("actions.md", is_nightly=True)
def act_on_jobs(reader: Reader) -> None:
    for part in ("## Many jobs", "## Retry a dead job"):
        # Four dead jobs, 1 … 4, and a queued one.
        reader.ask(
            "truncate rota.job, rota.job_history, rota.action;"
            "select setval('rota.job_id_seq', 1, false);"
            "insert into rota.job (job_type, status, failed_at, error_type) "
            "select 'report', 'dead', rota.clock(), 'OSError' from generate_series(1, 4);"
            "insert into rota.job (job_type) values ('report')"
        )
        reader.follow_to(part)
    follow_up_on(reader)


def follow_up_on(reader: Reader) -> None:
    @reader.app.job("follow_up")
    def follow_up(user: int) -> None: ...

    names, day = reader.names, datetime(2100, 1, 1, tzinfo=UTC)
    names.update({"follow_up": follow_up, "psycopg": psycopg, "datetime": datetime})
    reader.follow_rest()
    for user in (42, 43):
        names["signed_up"](reader.connection, user)
    names["asked_for_another_day"](reader.connection, 42, day)
    for _ in range(2):
        names["acted"](reader.connection, 43)
    found = reader.ask(
        "select payload, status, run_at = '2100-01-01Z' from rota.jobs "
        "where job_type = 'follow_up' order by id"
    )
    assert found == [({"user": 42}, "queued", True), ({"user": 43}, "cancelled", False)]


@follows("alerts.md")
def tell_somebody(reader: Reader) -> None:
    def decode(shown: str) -> None:
        told = msgspec.json.decode(shown, type=ops.alert.AlertMessage)
        assert json.loads(shown).keys() == set(told.__struct_fields__)

    sent: list[tuple[str, str]] = []
    reader.names["send_mail"] = lambda to, subject, text: sent.append((to, subject))

    def let_cron_type(block: str) -> None:
        [line] = [line for line in block.splitlines() if line.startswith("*")]
        checks.append(line.split(maxsplit=5)[5])
        assert reader.type(checks[0]) == ""

    checks: list[str] = []
    reader.languages |= {"json": decode, "text": let_cron_type}
    reader.follow_to("## Dead-man switch")
    reader.ask(
        "insert into rota.job (job_type, status, failed_at) "
        "select 't', 'dead', rota.clock() from generate_series(1, 10)"
    )
    for _ in range(2):  # the first one finds the alert, which enqueues the job
        reader.app.drain()
    assert sent == [("ops@example.com", "critical: dead jobs fires")]
    assert reader.type(checks[0]).startswith("CRITICAL - dead jobs: 10 jobs died")
    with serving() as web:
        reader.left = reader.left.replace("https://hc.example/the-check", web.url)
        reader.follow_rest()
        assert len(web.asked) == 1


@follows("dashboard.md", is_nightly=True)
def look_at_sites(reader: Reader) -> None:
    reader.follow_to("## In Django")  # test_django.py has that site
    api, site = reader.names["api"], reader.names["site"].test_client()
    url = "/admin/jobs/queues"
    assert TestClient(api).get(url).status_code == 403

    async def enter(scope: dict[str, object], receive: object, send: object) -> None:
        await api(scope | {"session": {"user": "ann"}}, receive, send)

    assert "/admin/jobs/dead" in TestClient(enter).get(url).text  # type: ignore[arg-type]
    for address, status in (("127.0.0.1", 200), ("192.0.2.1", 403)):
        assert site.get(url, environ_overrides={"REMOTE_ADDR": address}).status_code == status
    _, found, rest = reader.left.partition("## Without a site")
    reader.left = found + rest
    serve_alone(reader)


def serve_alone(reader: Reader) -> None:
    """This machine may look, and who has the password may act."""
    reader.ask("insert into rota.job (job_type) values ('pack')")
    reader.type("rota web --host 0.0.0.0 2>&1 | grep 'set ROTA_WEB_TOKEN'")
    reader.follow_to("It serves this machine")
    form, here = {"job": 1, "why": "not wanted"}, {"sec-fetch-site": "same-origin"}
    url = f"http://127.0.0.1:{reader.ports['8080']}"
    # It says where it serves a moment before it does.
    with httpx.Client(base_url=url, transport=httpx.HTTPTransport(retries=9)) as web:
        assert "pack" in web.get("/jobs").text
        assert web.post("/jobs/cancel", data=form, headers=here).status_code == 403
        reader.stop()
        reader.set("ROTA_WEB_TOKEN", "a long enough password")
        reader.type("rota web")
        for password, status in (("another password", 401), ("a long enough password", 303)):
            user = ("ann", password)
            done = web.post("/jobs/cancel", data=form, headers=here, auth=user)
            assert done.status_code == status
        reader.stop()
        reader.type("rota web --read-only")
        assert web.post("/jobs/archive", data=form, headers=here, auth=user).status_code == 403
    assert reader.ask("select by, why from rota.action") == [("ann", "not wanted")]


@follows("deploy.md")
def deploy(reader: Reader) -> None:
    def start(procfile: str) -> None:
        for line in procfile.splitlines():
            reader.type(line.partition(": ")[2])

    reader.follow_to("## Heroku")
    reader.set("DATABASE_URL", reader.url)
    reader.set("ROTA_DATABASE_URL", None)
    reader.languages["text"] = start
    reader.follow_rest()
    assert "started, release" in reader.read_logs()


@follows("drain-endpoint.md")
def drain_on_request(reader: Reader) -> None:
    secret = "a-secret-of-some-length"
    reader.set("TICK_SECRET", secret)
    reader.follow_to("Serve it alone")
    reader.type("uvicorn shop:tick")
    reader.follow_to("## Flask")
    assert '"state":"done"' in reader.printed
    reader.follow_rest()
    reader.names["greet"].enqueue("Ada")
    client = reader.names["site"].test_client()
    assert client.post("/tick").status_code == 401
    allowed = {"Authorization": f"Bearer {secret}"}
    assert client.post("/tick", headers=allowed).json["succeeded"] == 1
    reader.names["greet"].enqueue("Grace")
    view = reader.names["tick_view"]
    with django_database(reader.url):  # which sets Django up
        asked = RequestFactory()
        assert view(asked.post("/tick")).status_code == 401
        answer = view(asked.post("/tick", headers=allowed))
    assert json.loads(answer.content)["succeeded"] == 1
    assert view.csrf_exempt


@follows("erase.md")
def erase(reader: Reader) -> None:
    reader.ask("""insert into rota.job (job_type, payload) values ('charge', '{"user": 812}')""")
    reader.follow_rest()
    assert reader.ask("select payload ?& '{rota.erased}' from rota.jobs") == [(True,)]


@follows("failover-and-restore.md", is_nightly=True)
def restore_a_copy(reader: Reader) -> None:
    reader.ask("insert into rota.job (job_type) values ('mail')")
    with make_database(reader) as name:
        reader.set("PRODUCTION", reader.url)
        reader.set("RESTORED", reader.url)
        reader.set("STAGING", reader.server.url(name))
        reader.follow_rest()
        with psycopg.connect(reader.server.url(name)) as copy:
            found = "select rota.installation_paused() is null, (select count(*) from rota.job)"
            assert copy.execute(found).fetchone() == (True, 1)


@follows("logs.md", "metrics.md", "tracing.md", is_nightly=True)
def run_apart(reader: Reader) -> None:
    """Run each block in a process of its own: it changes what all Apps of a process share."""

    def run(block: str) -> None:
        reader.write("block.py", block)
        reader.type("python block.py")

    reader.languages["python"] = run


@follows("manage-schedules.md")
def manage_schedules(reader: Reader) -> None:
    [first] = re.findall(r"```python\n(import rota.*?)```", read_page("schedules.md"), re.DOTALL)
    mail = "\n\n@app.job('send_mail')\ndef send_mail(user_id: int) -> None: ...\n"
    reader.write("shop.py", first + mail)
    reader.app.sync()
    reader.follow_rest()
    left = [schedule.name for schedule in reader.app.schedules.list()]
    assert sorted(left) == ["cleanup", "nightly-mail", "report-eu"]


@follows("retention.md")
def archive(reader: Reader) -> None:
    reader.left = reader.left.replace("TO my_worker", "TO current_user")
    reader.follow_rest()
    assert reader.ask("select archive from rota.installation") == [("rota_archive",)]


@follows("pgbouncer.md")
def go_through_a_pooler(reader: Reader) -> None:
    if program() is None:
        pytest.skip("PGBOUNCER IS NOT INSTALLED: the page was not tried behind it")
    role = f"my_worker_{uuid4().hex[:8]}"
    for old, new in (
        ("my_worker", role),
        ("rota doctor\n", "rota doctor --all\n"),
        ("App(notify=False)\n", "App(notify=False)\n\n\n@app.job\ndef pack() -> None: ...\n"),
    ):
        reader.left = reader.left.replace(old, new)
    reader.environment["COLUMNS"] = "200"
    with Pooler(reader.server, reader.place / "pgbouncer.log") as pooler:
        reader.set("DIRECT", reader.url)
        reader.set("POOLER", pooler.url(reader.url.rpartition("/")[2]))
        reader.follow_to("`rota doctor` reports a pooler")
        assert "a transaction pooler, and the App has notify=False" in reader.printed
    reader.ask(f"create role {role} login")
    try:
        reader.follow_rest()
        with psycopg.connect(reader.url, user=role) as session:
            assert session.execute("show lock_timeout").fetchall() == [("10s",)]
            assert session.execute("show statement_timeout").fetchall() == [("30s",)]
    finally:
        reader.ask(f"drop role {role}")


@follows("reserved-slots.md", is_nightly=True)
def reserve_slots(reader: Reader) -> None:
    lines = re.findall(r"^(rota work .*?)  +# (.*)$", reader.left, re.MULTILINE)
    for command, remark in lines:
        kept = re.findall(r"(\d+) reserved|(\d+) of mail's and (\d+) of reports'", remark)
        [(count, mail, reports)] = kept or [("none", "", "")]
        reader.type(command)
        said = count or f"mail={mail}, reports={reports}"
        assert f"; {said} for priority above 0" in reader.read_logs()
        reader.stop()
        [log] = reader.place.glob("*.log")
        log.unlink()
    reader.left = ""


@follows("roles.md", is_nightly=True)
def give_rights(reader: Reader) -> None:
    """Each role has what the page says, and no more."""
    roles = {
        name: f"{name}_{uuid4().hex[:8]}" for name in ("worker", "worker_2", "reader", "monitor")
    }
    reader.left = re.sub(r"\bmy_(\w+)", lambda found: roles[found[1]], reader.left)
    urls = {name: make_conninfo(reader.url, user=role) for name, role in roles.items()}
    reader.ask("drop schema rota cascade")
    try:
        reader.follow_to("Run this as a superuser")
        migrate(urls["worker"])
        reader.follow_to("## Check it")
        try_rights(reader, urls)
        for name, level in (("worker", Level.OK), ("worker_2", Level.OK), ("reader", Level.WARN)):
            found = examine(Database(urls[name]), only=["privileges"])["privileges"]
            assert found.level is level, found
    finally:
        for role in reversed(roles.values()):
            reader.ask(f"drop owned by {role} cascade; drop role {role}")
    reader.left = ""  # its commands are asked of each role above


def try_rights(reader: Reader, urls: dict[str, str]) -> None:
    done: list[str] = []
    app = rota.App(urls["worker_2"])

    @app.job("t")
    def note(name: str) -> None:
        done.append(name)

    # A member of the owner works, and the partition that it creates is the owner's.
    [(day,)] = reader.ask("select max(relname) from pg_class where relname ~ '^job_history_\\d+$'")
    with psycopg.connect(urls["worker"], autocommit=True) as owner:
        owner.execute(f"drop table rota.{day}".encode())
        note.using(owner).enqueue("Ada")
        app.drain()
        app.close()
        assert done == ["Ada"]
        assert len(reader.ask(f"select from pg_class where relname = '{day}'")) == 1
        owner.execute("create table rota.of_a_later_release (a int)")
        owner.execute(
            "insert into rota.job (job_type, status, failed_at) values ('t', 'dead', now())"
        )
        of_others = "relnamespace = 'rota'::regnamespace and relowner <> current_user::regrole"
        assert owner.execute(f"select from pg_class where {of_others}".encode()).fetchall() == []
    tables = ("job", "jobs", "job_history", "attempt")
    for name, may, may_not in (
        (
            "reader",
            ("select payload from rota.jobs", "select * from rota.of_a_later_release"),
            ("delete from rota.job", "select rota.job_cancel(array[1])"),
        ),
        (
            "monitor",
            ("select * from rota.alert_rule",),
            [f"select * from rota.{table}" for table in tables],
        ),
    ):
        with psycopg.connect(urls[name], autocommit=True) as role:
            for statement in may:
                role.execute(statement.encode())
            for statement in may_not:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    role.execute(statement.encode())
    reader.set("ROTA_DATABASE_URL", urls["monitor"])
    assert reader.type("rota check").startswith("WARNING - dead jobs: 1 job died")
    with psycopg.connect(urls["worker"]) as other:
        other.execute("create temp table mine (a int)")
        found = examine(Database(urls["reader"]))
    skipped = [check.name for check, finding in found.findings if finding.level is Level.SKIPPED]
    assert skipped == ["app"]
    assert "idle in transaction" in found["snapshot"].what


@follows("search-jobs.md", "statistics.md", is_nightly=True)
def search(reader: Reader) -> None:
    @reader.app.job("send_mail")
    def send_mail() -> None:
        raise rota.Dead("connection refused")

    reader.ask(
        "select setval('rota.job_id_seq', 4711); "
        "insert into rota.job (id, job_type, idempotency_key, meta) "
        """values (4711, 'send_mail', 'order-4711', '{"tenant": "acme"}')"""
    )
    reader.app.drain()
    shown = {}

    def type_all(block: str) -> None:
        shown.update({line: reader.type(line) for line in block.splitlines()})

    reader.languages["sh"] = type_all
    reader.follow_rest()
    for line, printed in shown.items():
        if re.search("refused|dead|order-4711|rota job ", line):
            assert "4711" in printed, line


@follows("secrets.md")
def keep_secrets(reader: Reader) -> None:
    class Provider:
        def charge(self, user: int, token: str) -> None:
            charged.append((user, token))
            raise ValueError(f"card of cus_4711, {user}, refused for {token}")

    reader.patch.setattr(scrub, "_patterns", {})  # what the App adds is for all of a process
    charged: list[tuple[int, str]] = []
    old, new = make_key("k1"), make_key("k2")
    reader.set(VARIABLE, old)
    reader.follow_to("| annotation |")
    reader.app.sync()
    importlib.import_module("shop_secrets").__dict__["provider"] = Provider()
    reader.app.drain()
    assert charged == [(812, "tok-8f2e71")]
    assert reader.ask("select message from rota.attempt") == [
        ("card of ***, 812, refused for ***",)
    ]

    def refuse(block: str) -> None:
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            reader.ask(block)
        said = block.rpartition("-- ")[2].rstrip("…\n")
        assert said in str(refused.value) and "tok-8f2e71" not in str(refused.value)

    reader.languages["sql"] = refuse
    reader.set(VARIABLE, f"{new},{old}")
    reader.follow_rest()
    reveals = "select why from rota.action where verb = 'reveal'"
    assert reader.ask(reveals) == [("she asked for her data",)]
    assert "tok-8f2e71" not in reader.type("rota job 1")
    assert "tok-8f2e71" in reader.type("rota job 1 --reveal --why 'she asked'")


@follows("without-a-worker.md")
def start_by_cron(reader: Reader) -> None:
    def fit(shown: str) -> None:
        printed = reader.type("rota work --drain")
        assert re.sub(r"\d+", "0", shown.strip()) in re.sub(r"\d+", "0", printed)

    reader.languages["text"] = fit
