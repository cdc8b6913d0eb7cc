"""Mails through Exim, the mail server of Debian: an instance of its own, which passes them on to a
server of the test."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import NamedTuple

import pytest

from rota.kinds import mail
from tests.support.rules import rule
from tests.support.server import unused_port
from tests.support.smtp import Server, speaking
from tests.support.wait import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.system]

SIZE_MAX = 20_000
SILENT = "SMTP command timeout"
CONFIGURATION = f"""
spool_directory = PLACE/spool
log_file_path = PLACE/%s.log
pid_file_path = PLACE/pid
primary_hostname = exim.example
local_interfaces = 127.0.0.1
daemon_smtp_ports = PORT
keep_environment =
tls_advertise_hosts = *
tls_certificate = PLACE/certificate
message_size_limit = {SIZE_MAX}
smtp_receive_timeout = 5s
acl_smtp_rcpt = rcpt
begin acl
rcpt:
  require message = relay not permitted
    authenticated = *
  accept
begin routers
sink:
  driver = manualroute
  route_list = * 127.0.0.1
  self = send
  transport = sink
begin transports
sink:
  driver = smtp
  port = SINK
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if and{{{{eq{{$auth2}}{{shop}}}}{{eq{{$auth3}}{{secret}}}}}}}}
  server_advertise_condition = ${{if def:tls_in_cipher}}
"""
"""The words in capitals are macros of Exim."""


class Exim(NamedTuple):
    """It runs."""

    port: int
    log: Path
    sink: Server
    """What it passes mails on to."""

    def connect(self, login: str = "shop:secret@") -> AbstractAsyncContextManager[mail.SMTP]:
        return aclosing(mail.SMTP(f"smtp://{login}127.0.0.1:{self.port}"))

    def logged(self, what: str) -> int:
        """How often it has logged this."""
        return self.log.read_text().count(what) if self.log.exists() else 0

    def arrived(self) -> bytes:
        """Wait for the mail that it passes on; return it."""
        eventually(lambda: self.sink.messages)
        return self.sink.messages.pop()


@pytest.fixture
def exim(trusted: Path) -> Iterator[Exim]:
    # Debian puts it where only root looks.
    program = shutil.which("exim4", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("NO EXIM, OR NOT ROOT: NO MAIL GOES THROUGH A REAL MAIL SERVER")
    offers = ["8BITMIME", "SMTPUTF8", "SIZE 1000000"]
    # What it does after the sink has a mail may meet the end of the directory.
    directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with directory as place, speaking({}, offers) as sink:
        shutil.copyfile(trusted, f"{place}/certificate")
        shutil.chown(place, "Debian-exim")
        made = Exim(unused_port(), Path(place) / "main.log", sink)
        macros = f"PLACE = {place}\nPORT = {made.port}\nSINK = {sink.port}\n"
        configuration = Path(place) / "exim.conf"
        configuration.write_text(macros + CONFIGURATION)
        process = subprocess.Popen([program, "-C", str(configuration), "-bdf"])
        try:
            eventually(lambda: made.logged("listening for SMTP"))
            yield made
        finally:
            process.terminate()
            process.wait()


async def send(smtp: mail.SMTP, text: str = "text\n", to: str = "b@x.example") -> str:
    """Send a mail to it; return why it is not taken, or its answer."""
    message = EmailMessage(policy=SMTP.clone(utf8=not to.isascii()))
    message["Message-ID"], message["Date"] = "<1@x.example>", "Mon, 1 Jan 2024 00:00:00 +0000"
    message["From"] = "a@x.example"
    message.set_content(text)
    try:
        return await smtp.send(message, "a@x.example", to)
    except mail.NotSent as error:
        return f"{type(error).__name__} {error}"


@rule("M70")
async def test_exim_passes_on_what_was_sent_byte_by_byte_up_to_its_limit(exim: Exim) -> None:
    async with aclosing(mail.SMTP(exim.sink.url)) as direct, exim.connect() as smtp:

        async def sent(text: str, to: str = "b@x.example") -> bytes:
            """What the sink gets without Exim."""
            await send(direct, text, to)
            return exim.sink.messages.pop()

        lines, rest = divmod(SIZE_MAX - len(await sent("\n")), 72)
        longest = f"{'x' * 70}\n" * lines + "x" * rest + "\n"
        for text, to in (
            ("Grüße\n.\n..\n", "b@x.example"),
            ("Grüße\n", "jörg@x.example"),
            (longest, "b@x.example"),
        ):
            expected = await sent(text, to)
            assert (await send(smtp, text, to)).startswith("250 OK")
            assert exim.arrived().endswith(expected)
        assert len(expected) == SIZE_MAX
        refused = await send(smtp, f"x{longest}")
        assert refused.startswith("MailRefused 127.0.0.1: 552 Message size exceeds maximum")


@rule("M70", "M63")
async def test_exim_takes_mails_of_a_login_even_after_it_has_closed_a_silent_connection(
    exim: Exim,
) -> None:
    for login, said in (
        ("shop:wrong@", "AccountRefused"),
        ("", "NotSent 127.0.0.1: 550 relay not permitted"),
    ):
        async with exim.connect(login) as smtp:
            assert (await send(smtp)).startswith(said)
    async with exim.connect() as smtp:
        for silent in (0, 2):  # the first is that of the wrong password
            await asyncio.to_thread(eventually, lambda n=silent: exim.logged(SILENT) >= n)
            assert (await send(smtp)).startswith("250 OK")
            assert b"with esmtpsa " in exim.arrived()
