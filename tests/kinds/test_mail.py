"""Mails through a real server: sent once, found again, and each refusal where it belongs."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.kinds import mail
from rota.kinds.mail import transport
from rota.kinds.mail.transport import ATTEMPT_S
from rota.testing import Harness
from tests.kinds.conftest import Connection, drain
from tests.support.cli import CommandLine
from tests.support.post import Post, posting
from tests.support.rules import rule

Make = Callable[..., tuple[rota.App, mail.Mailer]]


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
    """Makes an App with a mailer, and with others beside it."""
    apps: list[rota.App] = []

    def make(
        smtp: Any = None, *, beside: Iterable[mail.Mailer] = (), **options: Any
    ) -> tuple[rota.App, mail.Mailer]:
        given = {"sender": "Shop <hello@shop.example>", "templates": templates, **options}
        mailer = mail.Mailer(smtp or post.url, **given)
        jobs = [package.jobs for package in (mailer, *beside)]
        apps.append(rota.App(database, jobs=jobs, release="1"))
        return apps[-1], mailer

    yield make
    for app in apps:
        app.close()


def send(mailer: mail.Mailer, user: int = 1, **options: Any) -> int:
    given = {"to": f"u{user}@x.example", "user_id": user, "event": "signup", **options}
    return mailer.send("welcome", data={"name": f"User <{user}>"}, **given).id


def send_to(mailer: mail.Mailer, users: Iterable[int], **options: Any) -> list[int]:
    """Send each of these users a mail, in one statement."""
    people = [mail.Recipient(f"u{n}@x.example", n, {"name": f"User <{n}>"}) for n in users]
    return [job.id for job in mailer.send_many("welcome", people, event="signup", **options)]


@rule("M70", "M50")
def test_a_mail_is_sent_once_for_its_user_template_and_event_and_is_found(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    first = send(mailer, to="U1@x.example")
    assert send(mailer, to="other@x.example") == first
    assert app.drain().succeeded == 1
    [taken] = post.taken
    assert (taken["To"], taken["From"]) == ("U1@x.example", "Shop <hello@shop.example>")
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

    # A run of the same job again sends nothing, nor does an urgent mail of the same event.
    app.retry(first, again=True)
    urgent = send(mailer, urgent=True)
    assert app.drain().succeeded == 2
    assert len(post.taken) == 1
    assert app.get(urgent).result == app.get(first).result == "250 OK as 1"


@rule("M70", "M50")
def test_two_mailers_of_an_app_send_beside_each_other(
    make: Make, templates: Path, post: Post
) -> None:
    other = mail.Mailer(post.url, sender="a@shop.example", templates=templates, name="invoices")
    app, mailer = make(beside=[other])
    for sender in (mailer, other):
        send(sender)
    assert app.drain().succeeded == 2
    assert len(post.taken) == len({message["Message-ID"] for message in post.taken}) == 2
    assert {sent.key for sent in mailer.find("u1@x.example")} == {
        "invoices:1:welcome:signup", "mail:1:welcome:signup"
    }  # fmt: skip


@rule("M70", "M50")
def test_a_user_with_a_colon_is_not_another_user_of_another_event(make: Make) -> None:
    _, mailer = make()
    given: Any = {"to": "a@x.example", "data": {"name": "Ann"}}
    mailer.send("welcome", user_id="1:welcome", event="e", **given)
    assert mailer.send("welcome", user_id="1", event="welcome:e", **given).created


@rule("M70", "M50")
async def test_a_mail_without_its_user_or_event_is_refused(make: Make) -> None:
    app, mailer = make()
    for given, said in (
        ({"user_id": None}, "user_id must be an integer or a text, not None"),
        ({"user_id": ""}, "user_id must be an integer or a text, not ''"),
        ({"user_id": True}, "user_id must be an integer or a text, not True"),
        ({"event": ""}, "event must be a text such as 'signup', not ''"),
        ({"event": None}, "event must be a text such as 'signup', not None"),
    ):
        asked: Any = {"to": "a@x.example", "user_id": 1, "event": "e", "data": {"name": "Ann"}}
        asked |= given
        with pytest.raises(rota.UsageError, match=said):
            mailer.new("welcome", **asked)
        with pytest.raises(rota.UsageError, match=said):
            await mailer.asend("welcome", **asked)
        many = [mail.Recipient(asked["to"], asked["user_id"], {"name": "Ann"})]
        with pytest.raises(rota.UsageError, match=said):
            mailer.send_many("welcome", many, event=asked["event"])
    assert await app.afind() == []


@rule("M70")
def test_data_that_is_no_dict_and_attachments_that_are_no_pairs_are_refused(make: Make) -> None:
    _, mailer = make()
    wrong: list[dict[str, Any]] = [{"data": ["ab"]}, {"attach": ("invoice", {"order": 17})}]
    for given in wrong:
        with pytest.raises(rota.UsageError, match=f"{next(iter(given))} must be"):
            mailer.new("welcome", to="a@x.example", user_id=1, event="e", **given)


@rule("M45", "M70")
def test_all_mails_to_an_address_are_found(make: Make, connection: Connection) -> None:
    _, mailer = make()
    connection.execute(
        "insert into rota.effect (key, job, claim, entry, if_uncertain, about, done_at) select n, "
        "1, 1, 1, 'dead', '{\"to\": \"a@x.example\"}', now() from generate_series(1, 101) n"
    )
    assert len(mailer.find("a@x.example")) == 101


@rule("M45", "M70")
def test_what_is_forgotten_or_erased_of_a_person_is_found_nowhere_and_not_sent_again(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    sent = send(mailer, to="Ada@planted.example")
    forgotten = send(mailer, 3, to="U3@X.example")  # an address is kept in lower case
    app.drain()
    waits = send(mailer, 2, to="Ada@planted.example", delay="1h")
    assert app.jobs.erase({"to": "Ada@planted.example"}, why="she asked").jobs == 2
    assert mailer.forget("u3@x.example", why="she asked") == 1
    assert mailer.find("Ada@planted.example") == mailer.find("u3@x.example") == []
    for table in ("jobs", "effect", "idempotency", "attempt", "action"):
        query = f"select from rota.{table} t where t::text ~* 'ada@planted|mail:[12]:|User <[12]'"
        assert connection.execute(query.encode()).fetchall() == []
    again = mailer.send("welcome", to="ada@x.example", user_id=1, event="signup", data={})
    assert (again.created, again.id, again.status) == (False, sent, "succeeded")
    assert app.get(waits).status == "cancelled"
    app.retry(forgotten, again=True)
    assert app.drain().succeeded == 1
    assert len(post.taken) == 2
    with pytest.raises(rota.UsageError, match="was erased"):
        mailer.resend(sent, content="latest")


@rule("M70", "M20")
def test_mails_commit_with_the_callers_transaction_and_go_over_one_connection(
    make: Make, post: Post, connection: Connection
) -> None:
    app, mailer = make()
    with connection.transaction(force_rollback=True):
        send(mailer, connection=connection)
    with connection.transaction():
        send_to(mailer, range(2, 22), connection=connection, data={"name": "nobody"})
    assert app.drain(concurrency=1).succeeded == 20
    assert sorted(post.addresses) == sorted(f"u{n}@x.example" for n in range(2, 22))
    assert {str(message["Subject"]) for message in post.taken} == {
        f"Welcome, User <{n}>" for n in range(2, 22)
    }  # what a recipient has counts before what all have
    assert post.connections <= 2


@rule("M70", "M63")
def test_what_the_account_is_refused_opens_the_breaker_and_kills_no_mail(
    make: Make, post: Post, connection: Connection
) -> None:
    breaker = rota.Breaker("mail.provider", failures=3)
    app, mailer = make(options={"breaker": breaker, "queue": "mails", "aliases": ["post"]})
    post.rcpt = lambda address, n: "550 5.7.0 your account is blocked"
    jobs = [send(mailer, 9, urgent=True), *send_to(mailer, range(7))]
    app.drain(concurrency=1)
    [known] = app.breakers.list()
    assert (known.name, known.state) == ("mail.provider", "open")
    assert {job.status for job in app.find()} == {"failed", "queued"}
    assert ({job.queue for job in app.find()}, app.get(jobs[0]).priority) == ({"mails"}, 50)
    timeouts = connection.execute("select name, timeout from rota.job_type").fetchall()
    assert dict(timeouts) == dict.fromkeys(("mail", "mail.urgent"), timedelta(seconds=ATTEMPT_S))
    assert len(post.asked) == 3
    post.rcpt = None
    app.breakers.reset("mail.provider")
    drain(app, connection)
    assert len(post.taken) == len(jobs)


@rule("M52", "M70")
def test_a_connection_that_ends_within_the_message_is_uncertain_and_not_repeated(
    make: Make, post: Post, connection: Connection
) -> None:
    """1: it was taken; 2: it was not."""
    app, mailer = make(options={"breaker": None})
    how = {"u1@x.example": "drop", "u2@x.example": "cut"}
    post.data = lambda address, n: how[address] if n == 1 else None
    jobs = send_to(mailer, (1, 2))
    app.drain()
    drain(app, connection)
    assert [app.get(job).status for job in jobs] == ["dead", "dead"]
    assert [[sent.status for sent in mailer.find(to)] for to in how] == [["uncertain"]] * 2
    assert post.addresses == ["u1@x.example"]


@pytest.mark.nightly
@rule("M52", "M70")
def test_a_message_without_an_answer_is_uncertain_until_a_person_has_looked(
    make: Make, post: Post, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MESSAGE_S", 1)
    app, mailer = make()
    post.data = lambda address, n: "wait" if n == 1 else None
    job = send(mailer)
    app.drain()
    drain(app, connection)
    [uncertain] = mailer.find("u1@x.example")
    assert (app.get(job).status, uncertain.status) == ("dead", "uncertain")
    app.effects.resolve(uncertain.key, done=False, why="the provider has it not")
    app.retry(job)
    app.drain()
    assert [message["Message-ID"] for message in post.taken] == [uncertain.message_id]


@pytest.mark.nightly
@rule("M70", "M87")
def test_a_mail_is_sent_once_more_as_it_was_or_as_the_template_is_now(
    make: Make, post: Post, templates: Path
) -> None:
    app, mailer = make()
    job = send(mailer)
    app.drain()
    second = mailer.resend(job, content="as-sent", why="she lost it", by="ann").id
    twice = mailer.resend(job, content="as-sent")
    assert (twice.created, twice.id) == (False, second), "however often it is asked for"
    assert app.drain().succeeded == 1
    [action] = app.jobs.log()
    assert (action.verb, action.job, action.by) == ("run_again", job, "ann")
    assert action.why == "mail resend, as-sent: she lost it"
    assert action.detail == {"run_again_as": second}

    write(templates, "welcome", text="Good day {{ name }}!")
    stopped = mailer.resend(second, content="as-sent").id
    assert app.drain().dead == 1
    was = mailer.find("u1@x.example")[-1].version
    assert f"was sent as version {was}" in str(app.get(stopped).last_error)
    mailer.resend(job, content="latest")
    assert app.drain().succeeded == 1
    first, again, new = (next(message.walk()).as_string() for message in post.taken)
    assert "Hello User" in first and "Hello User" in again and "Good day User" in new
    assert len({message["Message-ID"] for message in post.taken}) == 3


@pytest.mark.nightly
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
    with pytest.raises(rota.UsageError, match=f"job {job} was sent again as job {stopped}: send"):
        mailer.resend(job, content="latest")
    mailer.resend(stopped, content="latest")
    assert app.drain().succeeded == 1
    assert "Good day" in post.taken[1].as_string()
    assert len({message["Message-ID"] for message in post.taken}) == 1
    [sent] = mailer.find("u1@x.example")
    assert sent.status == "sent"
    assert "mail resend, as-sent" in {entry.why for entry in app.jobs.log()}


@pytest.mark.nightly
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
    drain(app, connection)
    assert len(post.taken) == 2
    drain(app, connection)
    assert app.get(again).status == "dead"
    app.retry(again)
    app.drain()
    assert len(post.taken) == 2, "what was said is of the first time"
    assert mailer.find("u1@x.example")[0].status == "uncertain"


@pytest.mark.nightly
@rule("M70", "M52")
def test_who_resends_at_the_same_time_neither_undoes_nor_repeats_it(
    make: Make, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, mailer = make()
    is_uncertain = False
    post.data = lambda address, n: "drop" if n == 1 or is_uncertain else None
    find = app.effects.find
    for user, known in enumerate(("sent", "uncertain"), 1):
        is_uncertain = known == "uncertain"
        job = send(mailer, user)
        app.drain()
        app.jobs.discard(job)

        def find_late(*asked: Any, again: int = job, **named: Any) -> Any:
            """Look, while another resends the mail, and it is sent."""
            monkeypatch.setattr(type(app.effects), "find", lambda _, *a, **n: find(*a, **n))
            found = find(*asked, **named)
            mailer.resend(again, content="latest")
            app.drain()
            return found

        monkeypatch.setattr(type(app.effects), "find", lambda _, *a, f=find_late, **n: f(*a, **n))
        with pytest.raises(rota.WrongStatus, match="requeued as job"):
            mailer.resend(job, content="latest")
        assert [sent.status for sent in mailer.find(f"u{user}@x.example")] == [known]
        assert len(post.taken) == 2 * user
    app.drain()
    assert len(post.taken) == 4


@pytest.mark.nightly
@rule("M70", "M50")
def test_a_mail_that_was_given_up_is_sent_again_with_its_key(make: Make, post: Post) -> None:
    app, mailer = make()
    cancelled, archived = send(mailer, 1), send(mailer, 2)
    app.cancel(cancelled)
    app.jobs.discard(archived)
    app.jobs.archive(archived, why="wrong")
    made = {}
    for user, job in ((1, cancelled), (2, archived)):
        with pytest.raises(rota.UsageError, match=f"job {job} sent nothing: content must be lat"):
            mailer.resend(job, content="as-sent")
        again = mailer.resend(job, content="latest")
        twice = mailer.resend(job, content="latest")
        assert (again.created, twice.created, twice.id) == (True, False, again.id)
        assert send(mailer, user) == again.id, "the application's own call finds it"
        made[job] = again.id
    app.drain()
    for user, job in ((1, cancelled), (2, archived)):
        assert send(mailer, user) == made[job]
        with pytest.raises(rota.UsageError, match=f"{made[job]} has sent the mail of job {job}"):
            mailer.resend(job, content="latest")
        assert mailer.resend(made[job], content="latest").created
    app.drain()
    assert sorted(post.addresses) == ["u1@x.example"] * 2 + ["u2@x.example"] * 2


@rule("M70", "M52")
def test_a_mail_that_was_given_up_and_is_uncertain_is_sent_again_with_its_key(
    make: Make, post: Post, templates: Path
) -> None:
    given: Any = {"sender": "a@shop.example", "templates": templates, "name": "skips"}
    skips = mail.Mailer(post.url, if_uncertain="skip", **given)
    app, dies = make(beside=[skips], options={"breaker": None})
    post.data = lambda address, n: "drop" if n == 1 else None
    cases: list[tuple[mail.Mailer, Any]] = [(dies, "as-sent"), (dies, "latest"), (skips, "latest")]
    jobs = [send(mailer, user) for user, (mailer, _) in enumerate(cases)]
    app.drain()
    made = []
    for user, (mailer, content) in enumerate(cases):
        app.cancel(jobs[user])
        made.append(mailer.resend(jobs[user], content=content).id)
        assert mailer.find(f"u{user}@x.example")[0].status == "uncertain"
    assert app.drain().succeeded == len(cases)
    for user, (mailer, _) in enumerate(cases):
        assert send(mailer, user) == made[user]
        first, second = (message for message in post.taken if message["To"] == f"u{user}@x.example")
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


@rule("M70", "M45")
def test_no_value_can_add_a_header(make: Make, post: Post) -> None:
    app, mailer = make()
    for to in ("a@x.example\nBcc: b@x.example", "a@x.example, b@x.example", "no address", ""):
        with pytest.raises(rota.UsageError, match="is no mail address"):
            mailer.send("welcome", to=to, user_id=1, event="e", data={"name": "x"})
    name = "x\r\nBcc: b@x.example"
    job = mailer.send("welcome", to="a@x.example", user_id=1, event="e", data={"name": name}).id
    for bad in ("https://x.example/\r\nBcc: b@x.example", "https://x.example/\n", "", "x"):
        with pytest.raises(rota.UsageError, match="unsubscribe must be a URL"):
            send(mailer, unsubscribe=bad)
    app.drain()
    assert app.get(job).status == "dead"
    assert post.taken == []


WORD = "=?utf-8?q?=0d=0aBcc:_b=40x.example=0d=0a=0d=0aBODY?="
"""An encoded word: who decodes it has a line break."""


@rule("M70", "M45")
def test_an_encoded_word_in_data_is_text_and_adds_no_header(
    make: Make, templates: Path, post: Post
) -> None:
    def file(name: str, media_type: str) -> mail.Attachment:
        return mail.Attachment(name, b"", media_type)

    app, mailer = make(attachments={"file": file})
    asked: Any = {"user_id": 1, "event": "e", "data": {"name": ""}}
    with pytest.raises(rota.UsageError, match="is no mail address"):
        mailer.send("welcome", to="=?utf-8?q?=0aBcc=3A_x?=@x.example", **asked)
    with pytest.raises(rota.UsageError, match="is no sender"):
        mail.Mailer(post.url, sender="=?utf-8?q?a?= <a@shop.example>", templates=templates)
    with pytest.raises(rota.UsageError, match=r"unsubscribe must be a URL.*write %3F for the \?"):
        send(mailer, unsubscribe=f"https://x.example/{WORD}")
    for n, given in enumerate(((WORD, "text/plain"), ("a.txt", f"text/{WORD}"))):
        send(mailer, n, attach=[("file", dict(zip(("name", "media_type"), given, strict=True)))])
    names = [f"{WORD} Ann", f"Jörg {WORD}", f"{'x' * 70} {WORD}"]
    people = [mail.Recipient(f"s{n}@x.example", n, {"name": name}) for n, name in enumerate(names)]
    mailer.send_many("welcome", people, event="subject")
    assert app.drain().dead == 2
    assert sorted(str(message["Subject"]) for message in post.taken) == sorted(
        f"Welcome, {name}" for name in names
    )
    assert all(message["Bcc"] is None for message in post.taken)


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


File: Any = mail.Attachment
TYPES = (
    "text/plain\r\nX: y",
    "text",
    "/",
    "te xt/plain",
    "multipart/mixed",
    "message/rfc822",
)
LIKE = "its name and type are such as a.pdf and application/pdf, without a line break"
MADE: list[tuple[Any, str | None]] = [
    *((File(name, b""), f"{LIKE} or '=?', not {name!r}") for name in ("a\r\nb", "")),
    *((File("a", b"", media_type), f"{LIKE} or '=?', not {media_type!r}") for media_type in TYPES),
    (FileNotFoundError("no a.pdf"), "no a.pdf"),
    (OSError("the disk is away"), None),
]


@rule("M70", "M71")
def test_what_cannot_be_made_is_dead_and_says_why_but_of_a_disk_nobody_knows(
    make: Make, post: Post
) -> None:
    def file(number: int) -> Any:
        made = MADE[number][0]
        if isinstance(made, OSError):
            raise made
        return made

    app, mailer = make(attachments={"file": file})
    jobs = [send(mailer, n, attach=[("file", {"number": n})]) for n in range(len(MADE))]
    lacks = mailer.send("reset", to="a@x.example", user_id=1, event="e", urgent=True).id
    row = {"template": "welcome", "to": "a@x.example", "event": "e", "data": {}, "attach": []}
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"template": "nosuch"}, "no mail template"),
        ({"to": "a\r@x.example"}, "no mail address"),
        ({"attach": [("no", {})]}, "no attachment 'no'"),
        ({"unsubscribe": "x"}, "unsubscribe must be a URL"),
        ({"again": {"not_done": "soon"}}, "Invalid isoformat"),
        ({"data": {"name": ""}, "again": {"hash": ""}}, "was sent as version None"),
    ]
    rows = [
        row | {"user": str(n), "unsubscribe": None} | wrong for n, (wrong, _) in enumerate(wrongs)
    ]
    others = [app.enqueue("mail", payload).id for payload in rows]
    app.drain()
    for job, (_, why) in zip(others, wrongs, strict=True):
        assert app.get(job).status == "dead" and why in str(app.get(job).last_error)
    for job, (_, said) in zip(jobs, MADE, strict=True):
        found = app.get(job)
        assert found.status == ("dead" if said else "failed"), said
        assert said is None or f"attachment 'file': {said}" in str(found.last_error)
    found = app.get(lacks)
    assert (found.status, found.job_type, found.priority) == ("dead", "mail.urgent", 50)
    assert str(found.last_error) == "mail template 'reset': 'code' is undefined"
    assert post.taken == []


@rule("M70")
def test_a_mail_that_cannot_be_is_refused_when_it_is_enqueued(make: Make, templates: Path) -> None:
    app, mailer = make(attachments={"file": lambda order: None})
    mailer.new("reset", to="a@x.example", user_id=1, event="e")
    (templates / "reset" / "subject.txt").unlink()
    mailer.new("reset", to="a@x.example", user_id=1, event="e")  # reads no folder again
    write(templates, "reset", subject="Your code")
    longest = 225 - len("mail:1:reset:")
    for template, change, said in (
        ("welcom", {}, r"no mail template 'welcom'.*reset, welcome"),
        ("reset", {"unsubscibe": "https://x"}, r"send\(\) takes no .* \(did you mean unsubs"),
        ("reset", {"attach": [("offer", {})]}, "no attachment 'offer'"),
        ("reset", {"attach": [("file", {})]}, "missing a required .*'order'"),
        ("reset", {"attach": [("file", {"order": 1, "x": 2})]}, "'x'"),
        ("reset", {"event": "e" * (longest + 1)}, "event is too long: .* at most 225 fit"),
        ("reset", {"user_id": "u" * 256}, "user_id is too long: .* at most 225 fit"),
    ):
        asked: Any = {"to": "a@x.example", "user_id": 1, "event": "e", **change}
        with pytest.raises(rota.UsageError, match=said):
            mailer.send(template, **asked)
    with pytest.raises(rota.UsageError, match=r"Mailer\.send\(\) needs event$"):
        mailer.send("reset", to="a@x.example", user_id=1)  # type: ignore[call-arg]
    with pytest.raises(rota.UsageError, match="if_uncertain is dead, skip or repeat, not 'no'"):
        make(if_uncertain="no")
    hosts = ("", "x?starttls=perhaps", "x?hostname=box", "x?hostname=a_b.example", "x:0", "[x")
    for wrong in ("http://x", *(f"smtp://{host}" for host in hosts)):
        with pytest.raises(rota.UsageError, match="mail server"):
            mail.SMTP(wrong)
    assert mailer.preview("welcome", data={"name": "Ann"})["Subject"] == "Welcome, Ann"
    with pytest.raises(rota.Dead, match="'name' is undefined"):
        mailer.preview("welcome", data={})
    assert app.find() == []


@rule("M70", "M45")
def test_a_password_that_is_not_written_as_in_a_url_is_not_shown() -> None:
    for password in ("PLANT/x", "1/PLANT", "PLANT#x", "PLANT?x", "PLANT[x"):
        with pytest.raises(rota.UsageError, match=r"write / as %2F, @ as %40") as caught:
            mail.SMTP(f"smtp://user:{password}@h:25")
        assert "PLANT" not in "".join(traceback.format_exception(caught.value)), password
    assert mail.SMTP("smtp://user:a%2Fb%40c@h:25")._password == "a/b@c"


@rule("M70")
def test_in_development_mails_are_files(make: Make, tmp_path: Path) -> None:
    app, mailer = make(mail.Folder(tmp_path / "outbox"))
    send(mailer)
    assert app.drain().succeeded == 1
    [file] = (tmp_path / "outbox").iterdir()
    assert file.suffix == ".eml" and b"Hello User <1>!" in file.read_bytes()
    assert mailer.find("u1@x.example")[0].answer == str(file)


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
        assert [delivered["To"] for delivered in sent] == ["u1@x.example", "u2@x.example"]
    app.close()


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


@rule("M70")
async def test_async_code_sends_finds_and_forgets_mails(make: Make) -> None:
    app, mailer = make()
    sent = await mailer.asend("welcome", to="a@x.example", user_id=1, event="e", data={"name": "A"})
    await app.adrain()
    assert [mail.job for mail in await mailer.afind("a@x.example")] == [sent.id]
    again = await mailer.aresend(sent.id, content="latest")
    assert (await app.aget(again.id)).status == "queued"
    assert await mailer.aforget("a@x.example") == 1
    await app.aclose()
