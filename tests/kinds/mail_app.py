"""An App that sends mails, for worker processes that are killed."""

from __future__ import annotations

import os

import rota
from rota.kinds import mail

mailer = mail.Mailer(
    os.environ["MAIL_URL"],
    sender="hello@shop.example",
    templates=os.environ["MAIL_TEMPLATES"],
    options={"max_attempts": 100, "breaker": None, "retry": rota.Fixed("1s")},
)
app = rota.App(jobs=[mailer.jobs], lease="2s")
