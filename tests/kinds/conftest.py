"""What tests of webhooks need: a receiver, and an App with webhooks; of mails: a certificate. Mail
and reports have more of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota.kinds import webhook
from tests.support.receiver import Receiver, receiving

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def make(database: str) -> Iterator[Any]:
    """Makes an App with webhooks, migrated and declared."""
    apps: list[rota.App] = []

    def make(**options: Any) -> tuple[rota.App, webhook.Webhooks]:
        hooks = webhook.Webhooks(**options)
        apps.append(rota.App(database, jobs=[hooks.jobs], release="1"))
        apps[-1].migrate()
        apps[-1].sync()
        return apps[-1], hooks

    yield make
    for app in apps:
        app.close()


def drain(app: rota.App, connection: Connection) -> None:
    """Run what is due, and what was delayed."""
    connection.execute("update rota.job set run_at = now() where status in ('queued', 'failed')")
    app.drain()


def make_certificate(folder: Path, name: str, of: str) -> Path:
    """Make a certificate with its key, in one file; FILE.cert has the certificate alone."""
    if shutil.which("openssl") is None:
        pytest.skip("NO OPENSSL: NOTHING GOES THROUGH TLS")
    file = folder / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={of}:{name}"]
    files = ["-keyout", str(file), "-out", f"{file}.cert"]
    subprocess.run([*command.split(), *subject, *files], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.cert").read_text())
    return file


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of 127.0.0.1 with its key, in one file."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "127.0.0.1", of="IP")


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It, and clients trust it."""
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.cert")
    return certificate
