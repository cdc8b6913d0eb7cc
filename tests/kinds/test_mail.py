"""Mails through a real server: sent once, found again, and each refusal where it belongs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
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
    mailer.resend(job, content="as-sent")
    assert app.drain().succeeded == 1
    write(templates, "welcome", text="Good day {{ name }}!")
    stopped = mailer.resend(job, content="as-sent").id
    assert app.drain().dead == 1
    was = mailer.find("u1@x.example")[-1].version
    assert f"was sent as version {was}" in str(app.get(stopped).last_error)
    mailer.resend(job, content="latest")
    assert app.drain().succeeded == 1
    first, again, new = (next(one.walk()).as_string() for one in post.taken)
    assert "Hello User" in first and "Hello User" in again and "Good day User" in new
    assert len({one["Message-ID"] for one in post.taken}) == 3


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
    bad = "https://x.example/\r\nBcc: b@x.example"
    other = send(mailer, unsubscribe=bad)
    app.drain()
    assert [app.get(one).status for one in (job, other)] == ["dead", "dead"]
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


@rule("M70")
def test_a_mail_that_cannot_be_is_refused_when_it_is_enqueued(make: Make, templates: Path) -> None:
    app, mailer = make()
    mailer.new("reset", to="a@x.example", user_id=1, event="e")
    (templates / "reset" / "subject.txt").unlink()
    mailer.new("reset", to="a@x.example", user_id=1, event="e")  # reads no folder again
    write(templates, "reset", subject="Your code")
    with pytest.raises(rota.UsageError, match=r"no mail template 'welcom'.*reset, welcome"):
        mailer.send("welcom", to="a@x.example", user_id=1, event="e")
    for wrong in ("http://x", "smtp://", "smtp://x?starttls=perhaps"):
        with pytest.raises(rota.UsageError, match="mail server"):
            mail.SMTP(wrong)
    message = mailer.preview("welcome", data={"name": "Ann"})
    assert message["Subject"] == "Welcome, Ann"
    with pytest.raises(rota.Dead, match="'name' is undefined"):
        mailer.preview("welcome", data={})
    assert app.find() == []


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
    assert cli.ok("mail", "forget", "u@x.example", "--why", "she asked").out == "answer  2\n"
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
