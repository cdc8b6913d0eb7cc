"""The mails of the run, and their promises: the judge goes by what their server received."""

from __future__ import annotations

import os
from pathlib import Path

import rota
from chaos.check import Check
from rota.kinds import mail

NAME = "mail"
SERVER = "CHAOS_SMTP"
"""The variable that tells a worker the URL of the server."""
TRIES = 20

mailer = mail.Mailer(
    os.environ.get(SERVER, "smtp://127.0.0.1:1"),  # who only enqueues sends none
    sender="chaos@shop.example",
    templates=Path(__file__).parent / "templates",
    name=NAME,
    # No breaker: it would be open for longer than the run has to come to rest.
    options={
        "max_attempts": TRIES,
        "retry": rota.Fixed("1s", jitter=0),
        "breaker": None,
        "expires": "36500d",  # a day of the soak takes two minutes
    },
)

MAILS = [
    Check(
        "no mail is received twice",
        """
        select min(e.job) as job, m.message_id, count(distinct m.seq) from chaos.mail m
        left join rota.effect e on e.about->>'message_id' = m.message_id
        group by m.message_id having count(distinct m.seq) > 1
        """,
    ),
    Check(
        "a mail that succeeded was received",
        """
        select s.job, s.key, e.about->>'message_id' as message_id from chaos.sender s
        left join rota.effect e on e.key = s.key and e.origin_id = 0
        where s.status = 'succeeded' and s.key like 'mail:%' and not exists (
          select from chaos.mail m where m.message_id = e.about->>'message_id')
        """,
    ),
    Check(
        "a mail that was received is known as sent, or as uncertain",
        """
        select null::bigint as job, m.message_id, m.at_s from chaos.mail m
        where not exists (select from rota.effects e
          where e.about->>'message_id' = m.message_id and e.status in ('done', 'uncertain'))
        """,
    ),
]
