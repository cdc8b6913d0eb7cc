"""Mail: rendered from templates, sent once, and found again by its address (extra `mail`)."""

from __future__ import annotations

from rota.kinds.mail.mailer import Mailer, NewMail, Recipient, Sent
from rota.kinds.mail.message import Attachment
from rota.kinds.mail.outbox import outbox
from rota.kinds.mail.transport import (
    SMTP,
    AccountRefused,
    Folder,
    MailRefused,
    NotSent,
    ServerUnavailable,
    Transport,
)

__all__ = [
    "SMTP",
    "AccountRefused",
    "Attachment",
    "Folder",
    "MailRefused",
    "Mailer",
    "NewMail",
    "NotSent",
    "Recipient",
    "Sent",
    "ServerUnavailable",
    "Transport",
    "outbox",
]
