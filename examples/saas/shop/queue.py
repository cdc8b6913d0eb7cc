"""The App, and the three kinds of job that the shop did not write itself."""

import os
from pathlib import Path

import rota
from rota.kinds import mail, report, webhook

FILES = Path(os.environ.get("SHOP_FILES", "files"))

mailer = mail.Mailer(
    os.environ.get("SMTP_URL") or mail.Folder(FILES / "outbox"),  # writes .eml files in development
    sender="Shop <hello@shop.example>",
    templates=Path(__file__).parent / "templates",
)
hooks = webhook.Webhooks()
reports = report.Reports(FILES / "reports")

app = rota.App(jobs=[mailer.jobs, hooks.jobs, reports.jobs])
