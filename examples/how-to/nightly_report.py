import os
import smtplib
from datetime import date, timedelta
from email.message import EmailMessage
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg
import rota

ZONE = "Europe/Stockholm"
FOLDER = Path(os.environ.get("REPORTS", "."))  # on a disk that all workers share
SALES = """
    copy (
      select product, sum(cents) as cents from sale
      where sold_at >= %(day)s::timestamp at time zone %(zone)s
        and sold_at < (%(day)s::timestamp + interval '1 day') at time zone %(zone)s
      group by product order by product
    ) to stdout with (format csv, header)
"""
app = rota.App()


@app.schedule("sales-report", "0 2 * * *", timezone=ZONE, catch_up="all")
@app.job(takes_context=True, timeout="10m")
def sales_report(ctx: rota.Context, day: date | None = None) -> str:
    if day is None:
        night = ctx.job.scheduled_for or ctx.job.created_at
        day = night.astimezone(ZoneInfo(ZONE)).date() - timedelta(days=1)
    path = FOLDER / f"sales-{day}.csv"
    with rota.write_file(path, key=f"sales:{day}") as file:
        if not file.done:
            with (
                psycopg.connect(app.url) as connection,
                connection.cursor().copy(SALES, {"day": day, "zone": ZONE}) as rows,
            ):
                for part in rows:
                    file.write(part)
    ctx.effect(f"sales_mail:{day}", if_uncertain="repeat").call(mail_file, path)
    return path.name


def mail_file(path: Path) -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        path.stem,
        "shop@a.example",
        "boss@a.example",
    )
    message.add_attachment(path.read_bytes(), maintype="text", subtype="csv", filename=path.name)
    with smtplib.SMTP(os.environ.get("SMTP_HOST", "localhost"), timeout=20) as server:
        server.send_message(message)
