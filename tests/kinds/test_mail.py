"""Mails through a real server: sent once, found again, and each refusal where it belongs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import mail
from rota.testing import Harness
from tests.support.cli import CommandLine
from tests.support.post import Post, posting
from tests.support.rules import rule

Make = Callable[..., tuple[rota.App, mail.Mailer]]
Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def post() -> Iterator[Post]:
    with posting() as post:
        yield post


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    """A folder with two templates."""
    write(tmp_path, "welcome", subject="Welcome, {{ name }}\n", text="Hello {{ name }}!\n")
    write(tmp_path, "welcome", html="<p>Hello {{ name }}!</p>")
    write(tmp_path, "reset", subject="Your code", text="{{ code }}")
    return tmp_path


def write(folder: Path, template: str, **parts: str) -> None:
    (folder / template).mkdir(exist_ok=True)
    for part, text in parts.items():
        (folder / template / f"{part}.{'html' if part == 'html' else 'txt'}").write_text(text)


@pytest.fixture
def make(database: str, templates: Path, post: Post) -> Iterator[Make]:
    """Makes an App with a mailer."""
    apps: list[rota.App] = []

    def make(smtp: Any = None, **options: Any) -> tuple[rota.App, mail.Mailer]:
        given = {"sender": "Shop <hello@shop.example>", "templates": templates, **options}
        mailer = mail.Mailer(smtp or post.url, **given)
        apps.append(rota.App(database, jobs=[mailer.jobs], release="1"))
        return apps[-1], mailer

    yield make
    for app in apps:
        app.close()


def send(mailer: mail.Mailer, user: int = 1, **options: Any) -> int:
    given = {"to": f"u{user}@x.example", "user_id": user, "event": "signup", **options}
    return mailer.send("welcome", data={"name": f"User <{user}>"}, **given).id


def due(app: rota.App, connection: Connection) -> None:
    """Run what is due, and what was delayed."""
    connection.execute("update rota.job set run_at = now() where status in ('queued', 'failed')")
    app.drain()


@rule("M70", "M50")
def test_a_mail_is_sent_once_for_its_user_template_and_event_and_is_found(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    first = send(mailer)
    assert send(mailer, to="other@x.example") == first
    assert app.drain().succeeded == 1
    [taken] = post.taken
    assert (taken["To"], taken["From"]) == ("u1@x.example", "Shop <hello@shop.example>")
    assert taken["Subject"] == "Welcome, User <1>"
    plain, html = taken.iter_parts()
    assert plain.get_content() == "Hello User <1>!\r\n"
    assert "<p>Hello User &lt;1&gt;!</p>" in html.get_content()

    [sent] = mailer.find("U1@X.example")
    assert sent == mailer.find(str(taken["Message-ID"]))[0]
    assert (sent.status, sent.to, sent.template, sent.job) == (
        "sent", "u1@x.example", "welcome", first,
    )  # fmt: skip
    assert (sent.answer, len(sent.version or ""), len(sent.hash or "")) == ("250 OK as 1", 12, 64)
    assert mailer.find("u2@x.example") == []

    # A run of the same job again sends nothing.
    app.retry(first, again=True)
    assert app.drain().succeeded == 1
    assert len(post.taken) == 1


@rule("M70", "M50")
def test_two_mailers_of_an_app_send_beside_each_other(
    database: str, templates: Path, post: Post
) -> None:
    given: Any = {"sender": "a@shop.example", "templates": templates}
    mailers = [mail.Mailer(post.url, **given), mail.Mailer(post.url, **given, name="invoices")]
    app = rota.App(database, jobs=[one.jobs for one in mailers])
    for one in mailers:
        send(one)
        assert app.drain().succeeded == 1
    assert len(post.taken) == len({one["Message-ID"] for one in post.taken}) == 2
    assert [one.key for one in mailers[0].find("u1@x.example")] == [
        "invoices:1:welcome:signup", "mail:1:welcome:signup"
    ]  # fmt: skip
    app.close()


@rule("M70", "M50")
def test_a_user_with_a_colon_is_not_another_user_of_another_event(make: Make, post: Post) -> None:
    app, mailer = make()
    given: Any = {"to": "a@x.example", "data": {"name": "Ann"}}
    mailer.send("welcome", user_id="1:welcome", event="e", **given)
    assert mailer.send("welcome", user_id="1", event="welcome:e", **given).created
    assert app.drain().succeeded == len(post.taken) == 2


@rule("M70", "M50")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"user_id": None}, "user_id must be an integer or a text, not None"),
        ({"user_id": ""}, "user_id must be an integer or a text, not ''"),
        ({"user_id": True}, "user_id must be an integer or a text, not True"),
        ({"event": ""}, "event must be a text such as 'signup', not ''"),
        ({"event": None}, "event must be a text such as 'signup', not None"),
    ],
)
async def test_a_mail_without_its_user_or_event_is_refused(
    make: Make, given: Any, said: str
) -> None:
    app, mailer = make()
    asked: Any = {"to": "a@x.example", "user_id": 1, "event": "e", "data": {"name": "Ann"}, **given}
    to, user = asked["to"], asked["user_id"]
    with pytest.raises(rota.UsageError, match=said):
        mailer.new("welcome", **asked)
    with pytest.raises(rota.UsageError, match=said):
        await mailer.asend("welcome", **asked)
    many = [mail.Recipient(to, user, {"name": "Ann"})]
    with pytest.raises(rota.UsageError, match=said):
        mailer.send_many("welcome", many, event=asked["event"])
    assert await app.afind() == []


@rule("M70", "M50")
def test_an_urgent_mail_and_an_ordinary_one_of_an_event_are_one_mail(
    make: Make, post: Post
) -> None:
    app, mailer = make()
    first = send(mailer)
    app.drain()
    second = send(mailer, urgent=True)
    assert app.drain().succeeded == len(post.taken) == 1
    assert app.get(first).result == app.get(second).result == "250 OK as 1"


@rule("M70")
def test_all_mails_to_an_address_are_found(make: Make, connection: Connection) -> None:
    _, mailer = make()
    connection.execute(
        "insert into rota.effect (key, job, claim, entry, if_uncertain, about, done_at) select n, "
        "1, 1, 1, 'dead', '{\"to\": \"a@x.example\"}', now() from generate_series(1, 101) n"
    )
    assert len(mailer.find("a@x.example")) == 101


@rule("M70", "M45")
def test_what_is_known_of_a_mail_can_be_forgotten_and_is_not_sent_again(
    make: Make, post: Post
) -> None:
    app, mailer = make()
    job = send(mailer)
    app.drain()
    assert mailer.forget("u1@x.example", why="she asked") == 1
    assert mailer.find("u1@x.example") == []
    app.retry(job, again=True)
    assert app.drain().succeeded == 1
    assert len(post.taken) == 1


@rule("M45", "M70")
def test_a_person_whose_mails_are_erased_is_found_nowhere_and_gets_none_of_them_again(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    sent = send(mailer, to="Ada@planted.example")
    app.drain()
    waits = send(mailer, 2, to="Ada@planted.example", delay="1h")
    assert app.jobs.erase({"to": "Ada@planted.example"}, why="she asked").jobs == 2
    assert mailer.find("Ada@planted.example") == []
    for table in ("jobs", "effect", "idempotency", "attempt", "action"):
        query = f"select from rota.{table} t where t::text ~* 'ada@planted|mail:[12]:|User'"
        assert connection.execute(query.encode()).fetchall() == []
    again = mailer.send("welcome", to="ada@x.example", user_id=1, event="signup", data={})
    assert (again.created, again.id, again.status) == (False, sent, "succeeded")
    assert app.get(waits).status == "cancelled"
    app.drain()
    assert len(post.taken) == 1
    with pytest.raises(rota.UsageError, match="was erased"):
        mailer.resend(sent, content="latest")


@rule("M70")
def test_a_mail_commits_with_the_callers_transaction(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    with connection.transaction(force_rollback=True):
        send(mailer, connection=connection)
    with connection.transaction():
        send(mailer, 2, connection=connection)
    app.drain()
    assert post.addresses == ["u2@x.example"]


@rule("M70")
def test_many_mails_go_over_one_connection(make: Make, post: Post) -> None:
    app, mailer = make()
    recipients = [mail.Recipient(f"u{n}@x.example", n, {"name": str(n)}) for n in range(20)]
    assert len(mailer.send_many("welcome", recipients, event="news:7")) == 20
    assert app.drain(concurrency=1).succeeded == 20
    assert sorted(post.addresses) == sorted(one.to for one in recipients)
    assert post.connections <= 2


@rule("M71", "M70")
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("450 4.2.0 greylisted", "failed"),
        ("452 4.2.2 mailbox full", "failed"),
        ("550 5.1.1 no such user", "dead"),
        ("550 5.7.1 relaying denied", "failed"),
        ("421 4.3.2 going down", "failed"),
    ],
)
@pytest.mark.parametrize("verb", ["rcpt", "data"])
def test_a_refusal_is_of_this_mail_or_of_the_account_and_nothing_was_sent(
    make: Make, post: Post, connection: Connection, answer: str, status: str, verb: str
) -> None:
    app, mailer = make()
    setattr(post, verb, lambda address, n: answer if n == 1 else None)
    job = send(mailer)
    app.drain()
    found = app.get(job)
    assert found.status == status
    assert answer.rsplit(maxsplit=1)[-1] in str(found.last_error)
    assert mailer.find("u1@x.example") == [], "the intent was taken back"
    if status == "failed":
        said = (
            "refuses the account" if (answer[0], verb) == ("5", "data") else "does not take it now"
        )
        said = "is unavailable" if answer.startswith("421") else said
        assert str(found.verdict_rule).startswith(f"the mail server {said}")
        due(app, connection)
        assert post.addresses == ["u1@x.example"]


@rule("M70", "M63")
def test_what_the_account_is_refused_opens_the_breaker_and_kills_no_mail(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    post.rcpt = lambda address, n: "550 5.7.0 your account is blocked"
    jobs = [send(mailer, user) for user in range(12)]
    app.drain(concurrency=1)
    [breaker] = app.breakers.list()
    assert (breaker.name, breaker.state) == ("mail.provider", "open")
    assert {app.get(job).status for job in jobs} == {"failed", "queued"}
    assert len(post.asked) == 5
    post.rcpt = None
    app.breakers.reset("mail.provider")
    due(app, connection)
    assert len(post.taken) == 12


@rule("M70", "M63")
def test_recipients_whose_rules_refuse_the_mail_stop_nobody_elses(make: Make, post: Post) -> None:
    app, mailer = make()
    post.rcpt = lambda address, n: None if address == "u6@x.example" else "550 5.7.1 not from you"
    jobs = [send(mailer, user) for user in range(7)]
    app.drain(concurrency=1)
    assert post.addresses == ["u6@x.example"]
    assert {app.get(job).status for job in jobs[:6]} == {"failed"}
    assert app.breakers.list()[0].state == "closed"


@rule("M70")
@pytest.mark.filterwarnings("ignore:Requiring AUTH:UserWarning")
@pytest.mark.parametrize("password", ["right", "wrong"])
def test_a_wrong_password_is_the_accounts_trouble(
    database: str, templates: Path, connection: Connection, password: str
) -> None:
    with posting(password="right") as post:
        url = f"smtp://shop:{password}@127.0.0.1:{post.port}?starttls=never"
        mailer = mail.Mailer(url, sender="a@shop.example", templates=templates)
        app = rota.App(database, jobs=[mailer.jobs])
        job = send(mailer)
        app.drain()
        found = app.get(job)
        assert found.status == ("succeeded" if password == "right" else "failed")
        assert len(post.taken) == (password == "right")
        if password == "wrong":
            assert "535" in str(found.last_error) and "wrong" not in str(found.last_error)
            assert str(found.verdict_rule).startswith("the mail server refuses the account")
        app.close()


@rule("M52", "M70")
@pytest.mark.parametrize("how", ["drop", "cut", "wait"])
def test_a_connection_that_ends_within_the_message_is_uncertain_and_not_repeated(
    make: Make, post: Post, connection: Connection, how: str
) -> None:
    app, mailer = make(mail.SMTP(post.url, timeout_s=1))
    post.data = lambda address, n: how if n == 1 else None
    job = send(mailer)
    app.drain()
    due(app, connection)
    assert app.get(job).status == "dead"
    [uncertain] = mailer.find("u1@x.example")
    assert uncertain.status == "uncertain"
    assert len(post.taken) == (how == "drop")
    app.effects.resolve(uncertain.key, done=False, why="the provider has it not")
    app.retry(job)
    app.drain()
    assert len(post.taken) == (2 if how == "drop" else 1)
    assert len({one["Message-ID"] for one in post.taken}) == 1, "the same over all attempts"


@rule("M70")
def test_a_mail_is_sent_once_more_as_it_was_or_as_the_template_is_now(
    make: Make, post: Post, templates: Path
) -> None:
    app, mailer = make()
    job = send(mailer)
    app.drain()
    second = mailer.resend(job, content="as-sent").id
    assert app.drain().succeeded == 1
    write(templates, "welcome", text="Good day {{ name }}!")
    stopped = mailer.resend(second, content="as-sent").id
    assert app.drain().dead == 1
    was = mailer.find("u1@x.example")[-1].version
    assert f"was sent as version {was}" in str(app.get(stopped).last_error)
    mailer.resend(job, content="latest")
    assert app.drain().succeeded == 1
    first, again, new = (next(one.walk()).as_string() for one in post.taken)
    assert "Hello User" in first and "Hello User" in again and "Good day User" in new
    assert len({one["Message-ID"] for one in post.taken}) == 3


@rule("M70", "M52")
def test_a_dead_mail_that_is_sent_again_keeps_its_key_and_message_id(
    make: Make, post: Post, templates: Path
) -> None:
    app, mailer = make()
    post.data = lambda address, n: "drop" if n == 1 else None
    job = send(mailer)
    with pytest.raises(rota.WrongStatus, match="its mail is still to be sent"):
        mailer.resend(job, content="latest")
    app.drain()
    app.jobs.discard(job)
    write(templates, "welcome", text="Good day {{ name }}!")
    stopped = mailer.resend(job, content="as-sent").id
    assert app.drain().dead == 1
    assert "was sent as version" in str(app.get(stopped).last_error)
    assert send(mailer) == stopped, "it took the key over"
    [uncertain] = mailer.find("u1@x.example")
    assert (uncertain.status, uncertain.job) == ("uncertain", stopped), "it may have arrived"
    mailer.resend(stopped, content="latest")
    assert app.drain().succeeded == 1
    assert "Good day" in post.taken[1].as_string()
    assert len({one["Message-ID"] for one in post.taken}) == 1
    [sent] = mailer.find("u1@x.example")
    assert sent.status == "sent"
    assert "mail resend, as-sent" in {one.why for one in app.jobs.log()}


@rule("M70", "M52")
def test_a_mail_that_was_said_not_to_be_sent_is_not_repeated_if_it_is_uncertain_again(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    answers = ["drop", "450 4.2.0 greylisted", "drop"]
    post.data = lambda address, n: answers[n - 1] if n <= 3 else None
    job = send(mailer)
    app.drain()
    app.jobs.discard(job)
    again = mailer.resend(job, content="latest", why="not in the log").id
    app.drain()
    assert (app.get(again).status, mailer.find("u1@x.example")) == ("failed", [])
    due(app, connection)
    assert len(post.taken) == 2
    due(app, connection)
    assert app.get(again).status == "dead"
    app.retry(again)
    app.drain()
    assert len(post.taken) == 2, "what was said is of the first time"
    assert mailer.find("u1@x.example")[0].status == "uncertain"


@rule("M70", "M52")
@pytest.mark.parametrize("how", ["done", "uncertain"])
def test_who_resends_at_the_same_time_neither_undoes_nor_repeats_it(
    make: Make, post: Post, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    app, mailer = make()
    post.data = lambda address, n: "drop" if n == 1 or how == "uncertain" else None
    job = send(mailer)
    app.drain()
    app.jobs.discard(job)
    find = app.effects.find

    def find_late(*asked: Any, **named: Any) -> Any:
        """Look, while another resends the mail, and it is sent."""
        monkeypatch.setattr(type(app.effects), "find", lambda _, *a, **n: find(*a, **n))
        found = find(*asked, **named)
        mailer.resend(job, content="latest")
        app.drain()
        return found

    monkeypatch.setattr(type(app.effects), "find", lambda _, *a, **n: find_late(*a, **n))
    with pytest.raises(rota.WrongStatus, match="requeued as job"):
        mailer.resend(job, content="latest")
    [known] = mailer.find("u1@x.example")
    assert known.status == ("sent" if how == "done" else "uncertain")
    assert len(post.taken) == 2
    app.drain()
    assert len(post.taken) == 2


@rule("M70", "M50")
@pytest.mark.parametrize("how", ["cancelled", "archived"])
def test_a_mail_that_was_given_up_is_sent_again_with_its_key(
    make: Make, post: Post, how: str
) -> None:
    app, mailer = make()
    job = send(mailer)
    if how == "cancelled":
        app.cancel(job)
    else:
        app.jobs.discard(job)
        app.jobs.archive(job, why="wrong")
    with pytest.raises(rota.UsageError, match=f"job {job} sent nothing: content must be latest"):
        mailer.resend(job, content="as-sent")
    again = mailer.resend(job, content="latest")
    twice = mailer.resend(job, content="latest")
    assert (again.created, twice.created, twice.id) == (True, False, again.id)
    assert send(mailer) == again.id, "the application's own call finds it"
    app.drain()
    assert send(mailer) == again.id
    with pytest.raises(rota.UsageError, match=f"job {again.id} has sent the mail of job {job}"):
        mailer.resend(job, content="latest")
    assert mailer.resend(again.id, content="latest").created
    app.drain()
    assert post.addresses == ["u1@x.example"] * 2


@rule("M70", "M52")
@pytest.mark.parametrize(
    ("content", "policy"), [("as-sent", "dead"), ("latest", "dead"), ("latest", "skip")]
)
def test_a_mail_that_was_given_up_and_is_uncertain_is_sent_again_with_its_key(
    make: Make, post: Post, content: Any, policy: str
) -> None:
    app, mailer = make(if_uncertain=policy)
    post.data = lambda address, n: "drop" if n == 1 else None
    job = send(mailer)
    app.drain()
    app.cancel(job)
    again = mailer.resend(job, content=content)
    assert mailer.find("u1@x.example")[0].status == "uncertain"
    assert app.drain().succeeded == 1
    assert send(mailer) == again.id
    first, second = post.taken
    assert first["Message-ID"] == second["Message-ID"]


@rule("M70", "M52")
def test_a_mail_that_another_job_is_sending_is_not_said_to_be_unsent(
    make: Make, post: Post
) -> None:
    app, mailer = make()
    job = send(mailer)
    app.cancel(job)
    asked: list[Future[rota.Enqueued]] = []

    def at_it(address: str, n: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            asked.append(pool.submit(mailer.resend, job, content="latest"))

    post.data = at_it
    send(mailer, urgent=True)
    assert app.drain().succeeded == len(post.taken) == 1
    assert isinstance(asked[0].exception(), rota.errors.EffectHeld)


@rule("M70", "M87")
def test_who_sent_a_mail_once_more_and_why_is_recorded(make: Make, post: Post) -> None:
    app, mailer = make()
    job = send(mailer)
    app.drain()
    again = mailer.resend(job, content="as-sent", why="she lost it", by="ann").id
    [action] = app.jobs.log()
    assert (action.verb, action.job, action.by) == ("run_again", job, "ann")
    assert (action.why, action.detail) == (
        "mail resend, as-sent: she lost it", {"run_again_as": again}
    )  # fmt: skip


@rule("M70")
def test_a_template_without_its_variable_is_dead_and_names_it(make: Make, post: Post) -> None:
    app, mailer = make()
    job = mailer.send("reset", to="a@x.example", user_id=1, event="e", urgent=True).id
    app.drain()
    found = app.get(job)
    assert (found.status, found.job_type, found.priority) == ("dead", "mail.urgent", 50)
    assert str(found.last_error) == "mail template 'reset': 'code' is undefined"
    assert post.taken == []


@rule("M70", "M45")
def test_no_value_can_add_a_header(make: Make, post: Post) -> None:
    app, mailer = make()
    for to in ("a@x.example\nBcc: b@x.example", "a@x.example, b@x.example", "no address", ""):
        with pytest.raises(rota.UsageError, match="is no mail address"):
            mailer.send("welcome", to=to, user_id=1, event="e", data={"name": "x"})
    name = "x\r\nBcc: b@x.example"
    job = mailer.send("welcome", to="a@x.example", user_id=1, event="e", data={"name": name}).id
    for bad in ("https://x.example/\r\nBcc: b@x.example", "https://x.example/\n", "", 7, "x"):
        with pytest.raises(rota.UsageError, match="unsubscribe must be a URL"):
            send(mailer, unsubscribe=bad)
    app.drain()
    assert app.get(job).status == "dead"
    assert post.taken == []


@rule("M70")
def test_international_addresses_work_or_are_refused_in_words(
    database: str, templates: Path, make: Make, post: Post
) -> None:
    app, mailer = make()
    mailer.send("welcome", to="jörg@bücher.example", user_id=1, event="e", data={"name": "Jörg"})
    assert app.drain().succeeded == 1
    assert post.addresses == ["jörg@bücher.example"]
    with posting(smtputf8=False) as old:
        _, mailer = make(old.url, name="old")
        app = mailer._types[False].app
        job = mailer.send("welcome", to="jörg@x.example", user_id=2, event="e", data={"name": "J"})
        app.drain()
        assert app.get(job.id).status == "dead"
        assert "takes no international addresses" in str(app.get(job.id).last_error)


@rule("M70")
def test_attachments_are_made_when_the_mail_is_sent(make: Make, post: Post) -> None:
    threads: set[str] = set()

    def invoice(order: int) -> mail.Attachment:
        threads.add(threading.current_thread().name)
        return mail.Attachment(f"{order}.pdf", b"%PDF " + str(order).encode(), "application/pdf")

    app, mailer = make(attachments={"invoice": invoice})
    url = "https://shop.example/u/1"
    send(mailer, attach=[("invoice", {"order": 17})], unsubscribe=url)
    assert app.drain().succeeded == 1
    assert threading.current_thread().name not in threads, "the worker's loop reads no files"
    [taken] = post.taken
    [file] = taken.iter_attachments()
    assert (file.get_filename(), file.get_content()) == ("17.pdf", b"%PDF 17")
    assert taken["List-Unsubscribe"] == f"<{url}>"
    assert taken["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    with pytest.raises(rota.UsageError, match="no attachment 'offer'"):
        send(mailer, 2, attach=[("offer", {})])


@rule("M70", "M71")
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (mail.Attachment("a\r\nb", b""), "name or type has a line break"),
        (mail.Attachment("a", b"", "text/plain\r\nX: y"), "name or type has a line break"),
        (mail.Attachment("a", "text"), "its content must be bytes"),  # type: ignore[arg-type]
        ("a.pdf", "its function must return a mail.Attachment"),
        (FileNotFoundError("no a.pdf"), "no a.pdf"),
        (OSError("the disk is away"), None),
    ],
)
def test_an_attachment_that_cannot_be_made_makes_the_job_dead_and_says_why(
    make: Make, post: Post, made: Any, said: str | None
) -> None:
    def file() -> Any:
        if isinstance(made, OSError):
            raise made
        return made

    app, mailer = make(attachments={"file": file})
    job = send(mailer, attach=[("file", {})])
    app.drain()
    found = app.get(job)
    assert found.status == ("dead" if said else "failed"), "of a disk nobody knows"
    assert said is None or f"attachment 'file': {said}" in str(found.last_error)
    assert post.taken == []


@rule("M70")
def test_arguments_of_another_form_are_refused_in_words(make: Make) -> None:
    app, mailer = make(attachments={"file": lambda: None})
    given: Any = {"to": "a@x.example", "user_id": 1, "event": "e"}
    wrong: Any = {"data": [1]}
    with pytest.raises(rota.UsageError, match=r"data must be a mapping of variables, not \[1\]"):
        mailer.send("reset", **given, **wrong)
    for wrong in ("file", ["file"], [("file", 1)], 7):
        with pytest.raises(rota.UsageError, match="attach must be like"):
            mailer.send("reset", **given, attach=wrong)
    longest = 225 - len("mail:1:reset:")
    for name, value in (("event", "e" * (longest + 1)), ("user_id", "u" * 256)):
        with pytest.raises(rota.UsageError, match=f"{name} is too long: .* at most 225 fit"):
            mailer.send("reset", **{**given, name: value})
    job = mailer.send("reset", **{**given, "event": "e" * longest}).id
    app.drain()
    assert mailer.resend(job, content="latest").created


@rule("M70")
def test_a_mail_that_cannot_be_is_refused_when_it_is_enqueued(make: Make, templates: Path) -> None:
    app, mailer = make()
    mailer.new("reset", to="a@x.example", user_id=1, event="e")
    (templates / "reset" / "subject.txt").unlink()
    mailer.new("reset", to="a@x.example", user_id=1, event="e")  # reads no folder again
    write(templates, "reset", subject="Your code")
    with pytest.raises(rota.UsageError, match=r"no mail template 'welcom'.*reset, welcome"):
        mailer.send("welcom", to="a@x.example", user_id=1, event="e")
    with pytest.raises(rota.UsageError, match="no mail template 'welcom'"):
        mailer.preview("welcom", data={})
    with pytest.raises(rota.UsageError, match=r"Mailer\.send\(\) needs event$"):
        mailer.send("reset", to="a@x.example", user_id=1)  # type: ignore[call-arg]
    given: Any = {"to": "a@x.example", "user_id": 1, "event": "e", "unsubscibe": "https://x"}
    with pytest.raises(rota.UsageError, match=r"send\(\) takes no .* \(did you mean unsubs"):
        mailer.send("reset", **given)
    _, with_file = make(name="files", attachments={"file": lambda order: None})
    for arguments, wrong in ({}, "missing a required .*'order'"), ({"order": 1, "x": 2}, "'x'"):
        with pytest.raises(rota.UsageError, match=f"attachment 'file', .*: .*{wrong}"):
            send(with_file, attach=[("file", arguments)])
    for wrong in ("http://x", "smtp://", "smtp://x?starttls=perhaps", "smtp://x:0", "smtp://[x"):
        with pytest.raises(rota.UsageError, match="mail server"):
            mail.SMTP(wrong)
    message = mailer.preview("welcome", data={"name": "Ann"})
    assert message["Subject"] == "Welcome, Ann"
    with pytest.raises(rota.Dead, match="'name' is undefined"):
        mailer.preview("welcome", data={})
    assert app.find() == []


@rule("M70", "M45")
@pytest.mark.parametrize("password", ["PLANT/x", "1/PLANT", "PLANT#x", "PLANT?x", "PLANT[x"])
def test_a_password_that_is_not_written_as_in_a_url_is_not_shown(password: str) -> None:
    with pytest.raises(rota.UsageError, match=r"write / as %2F, @ as %40") as caught:
        mail.SMTP(f"smtp://user:{password}@h:25")
    assert "PLANT" not in "".join(traceback.format_exception(caught.value))
    assert mail.SMTP("smtp://user:a%2Fb%40c@h:25")._password == "a/b@c"


@rule("M70")
def test_in_development_mails_are_files(make: Make, tmp_path: Path) -> None:
    app, mailer = make(mail.Folder(tmp_path / "outbox"))
    send(mailer)
    assert app.drain().succeeded == 1
    [file] = (tmp_path / "outbox").iterdir()
    assert file.suffix == ".eml" and b"Hello User <1>!" in file.read_bytes()
    assert mailer.find("u1@x.example")[0].answer == str(file)


@rule("M70", "M85")
def test_mails_are_found_forgotten_and_sent_again_on_the_command_line(
    database: str, templates: Path, post: Post, tmp_path: Path
) -> None:
    (tmp_path / "my_mail.py").write_text(
        "import rota\nfrom rota.kinds import mail\n"
        f"mailer = mail.Mailer({post.url!r}, sender='a@b.example', templates={str(templates)!r})\n"
        f"app = rota.App({database!r}, jobs=[mailer.jobs])\n"
        "mailer.send('welcome', to='u@x.example', user_id=1, event='e', data={'name': 'Ann'})\n"
    )
    cli = CommandLine(tmp_path, ROTA_APP="my_mail:app")
    cli.ok("work", "--drain")
    [found] = cli.ok("mail", "find", "u@x.example", "--json").json["found"]
    assert (found["status"], found["template"], found["job"]) == ("sent", "welcome", 1)
    assert "welcome" in cli.ok("mail", "find", "u@x.example").out
    sent = cli.ok("mail", "resend", "1", "--content", "as-sent", "--json", "--app=my_mail:app")
    assert sent.json["created"] is True
    cli.ok("work", "--drain")
    assert len(post.taken) == 2
    more = ("--content", "latest", "--why", "she asked", "--by", "ann")
    again = cli.ok("mail", "resend", "1", *more, "--json").json
    shown = cli.ok("job", str(again["id"])).out
    assert again["created"] is True and "by ann: mail resend, latest: she asked" in shown
    assert cli.ok("mail", "forget", "u@x.example", "--why", "she asked").out == "2\n"
    assert cli.ok("mail", "find", "u@x.example").out == "nothing found\n"
    assert "there is no command 'mial'" in cli("mial", "find", "x").err
    assert "there is no command 'fnd': did you mean `rota mail find`?" in cli("mail", "fnd").err


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("NO OPENSSL: NO MAIL GOES THROUGH TLS")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    subject = ["subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", f"{file}.cert"]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.cert").read_text())
    return file


@rule("M70", "M45")
@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_password_goes_through_tls_and_only_to_a_server_that_is_trusted(
    database: str,
    templates: Path,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.cert")
    with posting(password="right", tls=context) as post:
        url = f"smtp://shop:right@127.0.0.1:{post.port}"
        mailer = mail.Mailer(url, sender="a@shop.example", templates=templates)
        app = rota.App(database, jobs=[mailer.jobs])
        job = send(mailer)
        app.drain()
        found = app.get(job)
        assert found.status == ("succeeded" if is_trusted else "failed"), found.last_error
        assert len(post.taken) == is_trusted
        if not is_trusted:
            assert "certificate" in str(found.last_error).lower()
        app.close()


def test_a_test_sees_what_its_mails_are(
    database: str, templates: Path, connection: Connection
) -> None:
    mailer = mail.Mailer("smtp://mail.invalid", sender="a@shop.example", templates=templates)
    app = rota.App(database, jobs=[mailer.jobs])
    with mail.outbox(mailer) as sent:
        send(mailer)
        app.drain()
        [message] = sent
        assert (message["To"], message["Subject"]) == ("u1@x.example", "Welcome, User <1>")
        with connection.transaction(force_rollback=True):
            harness = Harness(app, connection=connection)  # and on the connection of the test
            send(mailer, 2)
            assert harness.drain().succeeded == 1
            harness.close()
        assert [one["To"] for one in sent] == ["u1@x.example", "u2@x.example"]
    app.close()


@rule("M70")
def test_a_mail_is_sent_again_once_however_often_it_is_asked_for(make: Make, post: Post) -> None:
    app, mailer = make()
    post.data = lambda address, n: "550 5.6.0 no" if n == 1 else None
    job = send(mailer)
    assert app.drain().dead == 1
    later = mailer.resend(job, content="latest").id
    with pytest.raises(rota.UsageError, match=f"job {job} was sent again as job {later}"):
        mailer.resend(job, content="latest")
    assert app.drain().succeeded == 1
    again = mailer.resend(later, content="latest")
    twice = mailer.resend(later, content="latest")
    assert (again.created, twice.created, twice.id) == (True, False, again.id)
    app.drain()
    assert len(post.taken) == 2
    third = mailer.resend(again.id, content="latest")
    app.drain()
    assert third.created
    assert len(post.taken) == 3


@rule("M45")
def test_address_and_data_of_a_mail_are_masked_where_they_are_shown(
    make: Make, tmp_path: Path, post: Post
) -> None:
    app, mailer = make()
    app.sync()
    job = send(mailer)
    shown = CommandLine(tmp_path, ROTA_DATABASE_URL=app.url).ok("job", str(job)).out
    assert "welcome" in shown
    assert "u1@x.example" not in shown
    assert "User" not in shown
