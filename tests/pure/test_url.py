"""The forms in which an application has the URL of its database."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.utils.connection import ConnectionProxy
from sqlalchemy import make_url

import rota
from rota.declare.url import find_url
from rota.store.drivers.own import parse_url
from tests.support.django_site import django_database
from tests.support.rules import rule


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No URL but those of the test."""
    for name in ("ROTA_DATABASE_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("postgresql+psycopg://u:p%40@h:1/d", "postgresql://u:p%40@h:1/d"),
        ("postgresql+psycopg2://u@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require"),
        ("postgresql+asyncpg://u@h/d?ssl=require", "postgresql://u@h/d?sslmode=require"),
        (
            "postgresql+asyncpg://u@h/d?a=1&ssl=verify-full",
            "postgresql://u@h/d?a=1&sslmode=verify-full",
        ),
        ("postgresql+asyncpg://u@h/d?ssl=true", "postgresql://u@h/d?ssl=true"),
        ("postgres+psycopg://u@h/d", "postgres://u@h/d"),
        ("postgres://u@h/d", "postgres://u@h/d"),
        ("host=h dbname=d password=a+b://c", "host=h dbname=d password=a+b://c"),
        (make_url("postgresql+asyncpg://u:secret@h/d"), "postgresql://u:secret@h/d"),
        (lambda: make_url("postgresql+psycopg://u:secret@h/d"), "postgresql://u:secret@h/d"),
        (lambda: "postgresql+psycopg://h/d", "postgresql://h/d"),
    ],
)
def test_a_url_of_sqlalchemy_is_read(given: Any, read: str) -> None:
    assert find_url(given) == read


def test_the_environment_may_have_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql+asyncpg://h/d")
    assert find_url(None) == find_url(lambda: None) == "postgresql://h/d"
    assert rota.App(lambda: None).url == "postgresql://h/d"


def test_a_function_is_called_when_the_url_is_needed_and_not_before() -> None:
    calls: list[int] = []

    def url() -> str:
        calls.append(1)
        return "postgresql://h/d"

    app = rota.App(url)
    assert not calls
    assert app.url == "postgresql://h/d" and calls


@rule("M45")
def test_an_error_of_the_function_shows_its_class_and_its_place_and_nothing_secret() -> None:
    def url() -> str:
        raise LookupError("hunter2")

    with pytest.raises(
        rota.errors.ConfigurationError, match=r"failed with LookupError at .*test_url"
    ) as no:
        find_url(url)
    assert "hunter2" not in str(no.value) and no.value.__suppress_context__


async def _later() -> str:
    return "postgresql://h/d"


MEANS_NOTHING = (
    "autocommit client_encoding connection_factory context cursor_factory isolation_level pool"
    " prepare_threshold row_factory server_side_binding"
)
"""Options of Django and of its driver that say nothing of where the database is."""


@pytest.mark.parametrize("is_proxy", [False, True])
def test_a_connection_of_django_says_where_its_database_is(is_proxy: bool) -> None:
    options: dict[str, Any] = {"sslmode": "require", "service": "s", "user": "v", "port": ""}
    options |= dict.fromkeys(MEANS_NOTHING.split(), "x") | {"assume_role": "", "options": None}
    with django_database("postgresql://u@h:1/d", **options) as alias:
        connection = ConnectionProxy(connections, alias) if is_proxy else connections[alias]
        app = rota.App(connection)
        connection.settings_dict |= {"NAME": "test_d", "PASSWORD": "p '&@/"}
        read = parse_url(str(app.url))
        del connections[alias]
    expected = {"dbname": "test_d", "user": "u", "password": "p '&@/", "host": "h", "port": "1"}
    assert read == {**expected, "sslmode": "require", "service": "s"}


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, "-c role=app\\ own\\\\er"),
        ({"options": "-c jit=off"}, "-c jit=off -c role=app\\ own\\\\er"),
        ({"assume_role": 5}, "-c role=5"),  # of which the server says that it is none
    ],
)
def test_the_role_that_django_assumes_is_assumed_by_workers(
    options: dict[str, Any], read: str
) -> None:
    options = {"assume_role": "app own\\er", **options}
    with django_database("postgresql://u@h:1/d", **options) as alias:
        assert parse_url(str(find_url(connections[alias])))["options"] == read
        del connections[alias]


@rule("M45")
def test_an_option_of_django_that_libpq_lacks_is_refused_by_name() -> None:
    with django_database("postgresql://u@h:1/d", use_iam_auth=True, password="hunter2") as alias:
        with pytest.raises(
            rota.errors.ConfigurationError, match="option 'use_iam_auth', which Rota cannot use"
        ) as no:
            _ = rota.App(connections[alias])._database
        del connections[alias]
    assert "hunter2" not in str(no.value)


def test_another_database_of_django_is_refused() -> None:
    with django_database("postgresql://u@h:1/d") as alias:
        connections.settings[alias]["ENGINE"] = "django.db.backends.sqlite3"
        with pytest.raises(
            rota.errors.ConfigurationError, match="is sqlite; Rota needs PostgreSQL"
        ):
            find_url(lambda: connections[alias])
        del connections[alias]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: None, "returned no URL, and ROTA_DATABASE_URL is not set"),
        (lambda: "", "returned no URL"),
        (lambda: 7, r"must be a text, not builtins\.int"),
        (_later, "must be a plain one, not async"),
        (str(make_url("postgresql+psycopg://u:secret@h/d")), "in place of its password"),
    ],
)
def test_what_is_no_url_is_refused_in_words(given: Any, said: str) -> None:
    with pytest.raises(rota.errors.ConfigurationError, match=said):
        find_url(given)


def test_an_option_of_asyncpg_that_libpq_does_not_know_is_refused() -> None:
    with pytest.raises(rota.errors.ConfigurationError, match="cannot be read"):
        _ = rota.App("postgresql+asyncpg://h/d?command_timeout=5")._database
