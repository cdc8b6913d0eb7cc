"""Making an App: it connects to nothing, takes its jobs from modules, and says which part of its
configuration is wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.support import forked
from tests.support.rules import rule

CLOSED_PORT = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that an application might have."""
    (tmp_path / "billing_of_this_test.py").write_text(
        "import rota\njobs = rota.Jobs()\nnumber = 5\n@jobs.job('charge')\ndef charge(invoice: "
        "int) -> None: ...\n"
    )
    (tmp_path / "broken_of_this_test.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("billing_of_this_test", "broken_of_this_test"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("modules")
def test_jobs_can_be_named_as_module_and_attribute() -> None:
    app = rota.App(CLOSED_PORT, jobs=["billing_of_this_test:jobs"])

    assert list(app.types) == ["charge"]


@pytest.mark.usefixtures("modules")
def test_a_wrong_module_text_says_which_part_is_wrong() -> None:
    for reference, why in (
        ("billing_of_this_test", "must be module:attribute"),
        (":jobs", "must be module:attribute"),
        ("..billing:jobs", "must be module:attribute"),
        ("not_there_at_all:jobs", "no module 'not_there_at_all' on sys.path"),
        ("billing_of_this_test:job", "module 'billing_of_this_test' has no attribute 'job'"),
        ("billing_of_this_test:number", r"is a int, not a rota\.Jobs"),
    ):
        with pytest.raises(rota.errors.ConfigurationError, match=why) as refused:
            rota.App(CLOSED_PORT, jobs=[reference])
        assert repr(reference) in str(refused.value)
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_not_there"):
        rota.App(CLOSED_PORT, jobs=["broken_of_this_test:jobs"])


def test_what_cannot_be_is_refused_when_an_app_is_made() -> None:
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"jobs": [5]}, rota.errors.DeclarationError, "'module:attribute' strings, not 5"),
        ({"jobs": "billing:jobs"}, rota.errors.DeclarationError, "a list"),
        ({"jobs": rota.Jobs()}, rota.errors.DeclarationError, "a list"),
        ({"require_connection": "no"}, rota.errors.DeclarationError, "must be True or False"),
        *(({"lease": lease}, rota.UsageError, "lease") for lease in ("999ms", 120, "2 minutes")),
    ]
    for options, error, why in wrong:
        with pytest.raises(error, match=why):
            rota.App(CLOSED_PORT, **options)
    for given in (3, AsyncExitStack()):
        with pytest.raises(rota.errors.DeclarationError, match="Jobs: lifespan must be a function"):
            rota.Jobs(lifespan=given)  # type: ignore[arg-type]
    for commands in ({"mail": print}, {"mail find": 3}, {"a b c": print}):
        with pytest.raises(rota.errors.DeclarationError, match="a command is 'NOUN VERB'"):
            rota.Jobs(commands=commands)  # type: ignore[arg-type]


def test_a_schema_name_that_would_need_quoting_is_refused() -> None:
    for schema in ("", "Rota", "rota-1", "1rota", "r" * 51, 'rota"; drop'):
        with pytest.raises(rota.errors.ConfigurationError, match="schema"):
            rota.App(CLOSED_PORT, schema=schema).get(1)


def test_database_url_alone_is_never_used_and_the_error_names_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", CLOSED_PORT)
    app = rota.App()

    with pytest.raises(
        rota.errors.ConfigurationError, match=r'set ROTA_DATABASE_URL="\$DATABASE_URL"'
    ):
        app.get(1)


def test_an_app_takes_its_url_from_the_environment_when_it_is_first_used(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = rota.App()
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    monkeypatch.setenv("DATABASE_URL", CLOSED_PORT)

    with pytest.raises(rota.JobNotFound):
        app.get(1)
    app.close()


def test_texts_of_every_language_go_there_and_back_whatever_the_environment_says(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with closing(rota.App(database)) as app:

        @app.job("greet")
        def greet(name: str) -> None: ...

        job = greet.enqueue(name="北京 🚂")
        assert app.get(job.id).payload == {"name": "北京 🚂"}
        assert app.find(error="北京") == []


def test_an_app_connects_to_nothing_until_it_is_used() -> None:
    app = rota.App(CLOSED_PORT)

    @app.job("send_mail")
    def send_mail(user_id: int) -> None: ...

    new = send_mail.new(1)
    assert new.payload_json == '{"user_id":1}'
    with pytest.raises(rota.DatabaseUnavailable):
        app.drain()


@rule("M45")
@pytest.mark.parametrize(
    "url",
    [
        "postgres:/user:SECRET@host/db",
        "postgres//user:SECRET=@host",
        "host=x password=my SECRET",
        'password="SECRET a',
        "postgresql://user:SECRET%zz@host/db",
        "postgresql://user:SECRET@[::1/db",
        "postgresql://host/db?password=MY&SECRET",
        "postgresql://host/db?SECRET=1",
        "postgresql://user:MY@SECRET@host/db",
        "postgresql://user:MY/SECRET@host/db",
        "postgresql://user:password@host:SECRET/db",
    ],
)
def test_an_url_that_cannot_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(
        rota.errors.ConfigurationError, match="the database URL cannot be read"
    ) as refused:
        rota.App(url).get(1)
    assert "SECRET" not in str(refused.value) and refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://user:a?b#c@127.0.0.1:1/db", "127.0.0.1"),
        ("postgresql://u:p@127.0.0.1:1,127.0.0.2:1/db", "127.0.0.2"),
        ("postgresql://user@/db?host=/no@where", "/no@where"),
        ("postgres://[::1]:1/db", "::1"),
        ("host=/no@where dbname=a@b://c", "/no@where"),
    ],
)
def test_an_url_that_is_unusual_is_read(url: str, host: str) -> None:
    with pytest.raises(rota.DatabaseUnavailable, match=host):
        rota.App(url).get(1)


def test_settings_of_a_worker_out_of_range_are_refused(app: rota.App) -> None:
    with pytest.raises(rota.errors.ConfigurationError, match="no job types"):
        app.drain()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"concurrency": 0}, "concurrency must be a whole number from 1 to 10,000"),
        ({"concurrency": 10_001}, "concurrency must be a whole number from 1 to 10,000"),
        ({"queues": {}}, "queues is empty"),
        ({"queues": {"email": 0}}, "the slots of queue 'email' must be"),
        ({"queues": {"": 1}}, "a queue's name must be 1 to 100"),
    ]
    for options, why in wrong:
        with pytest.raises(rota.UsageError, match=why):
            rota.App(CLOSED_PORT).drain(**options)


FORK = """
import os, warnings, rota
warnings.simplefilter("error")
app = rota.App()

@app.job("fork")
def fork(who: str) -> None: ...

fork.enqueue("before")  # its pool is open
pid = os.fork()
fork.enqueue("child" if pid == 0 else "parent")
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
fork.enqueue("parent again")
app.close()
"""


def test_an_app_made_before_a_fork_works_in_parent_and_child(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    done = forked.run(["-c", FORK], env={**os.environ, "ROTA_DATABASE_URL": database})

    assert done.returncode == 0, done.stderr
    assert connection.execute("select payload ->> 'who' from rota.job order by 1").fetchall() == [
        ("before",),
        ("child",),
        ("parent",),
        ("parent again",),
    ]


@rule("M20")
def test_what_jobs_share_lives_from_before_their_first_job_until_after_their_last(
    database: str,
) -> None:
    told: list[str] = []

    def lifespan(name: str) -> Any:
        @asynccontextmanager
        async def live() -> AsyncIterator[str]:
            told.append(f"{name} begins")
            yield name
            told.append(f"{name} ends")

        return live

    jobs = rota.Jobs(lifespan=lifespan("jobs"))
    app = rota.App(database, jobs=[jobs, rota.Jobs()], lifespan=lifespan("app"))

    @jobs.job("greet", takes_context=True)
    def greet(ctx: rota.Context) -> None:
        told.append(f"greets in {ctx.state}")

    greet.enqueue()
    assert app.drain().succeeded == 1
    app.close()
    assert told == ["jobs begins", "app begins", "greets in app", "app ends", "jobs ends"]
