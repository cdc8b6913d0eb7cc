"""`rota.testing.Bench`: what a test asks of the queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.testing import Bench

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: str) -> rota.App:
    return rota.App(database, release="1")


@pytest.fixture
def bench(app: rota.App) -> Iterator[Bench]:
    with Bench(app) as bench:
        yield bench


def test_a_performed_job_has_its_result_and_is_recorded(app: rota.App, bench: Bench) -> None:
    threads = []

    @app.job("add")
    def add(a: int, b: int = 1) -> int:
        threads.append(threading.current_thread())
        return a + b

    done = bench.perform(add.new(2))
    assert (done.status, done.result, done.attempt, done.error) == ("succeeded", 3, 1, None)
    assert threads != [threading.main_thread()], "the real executor runs it"
    assert app.get(done.id).release == "1"
