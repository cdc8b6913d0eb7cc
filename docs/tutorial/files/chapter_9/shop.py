import csv
import time
from pathlib import Path

import psycopg
import rota

app = rota.App(release="3")
OUTBOX = Path("outbox/mails.txt")


@app.job(
    max_attempts=4,
    retry=rota.Delays("1m", "10m", "1h"),
    fatal_on=(KeyError,),
    timeout="20s",
    takes_context=True,
)
def send_receipt(ctx: rota.Context, order_id: int, language: str = "en") -> str:
    with psycopg.connect(app.url) as connection:
        [(address, item)] = connection.execute(
            "select address, item from orders where id = %s", [order_id]
        ).fetchall()
    if "@" not in address:
        raise rota.Dead(f"{address} is not a mail address")
    mail = ctx.effect(f"receipt:{order_id}", safe=(FileNotFoundError,))
    mail.call(deliver, address, write_receipt(language, item))
    return f"mailed {address}"


GREETINGS = {"en": "Thank you for your order", "fr": "Merci pour votre commande"}


def write_receipt(language: str, item: str) -> str:
    return f"{GREETINGS.get(language, GREETINGS['en'])}: {item}."


def deliver(address: str, text: str) -> None:
    """Send a mail. In this tutorial a file plays the mail server."""
    with OUTBOX.open("a") as mails:
        mails.write(f"To {address}: {text}\n")
    time.sleep(0.1)


TABLES = """
create table if not exists stock (item text primary key, pieces int check (pieces >= 0));
create table if not exists orders (
    id int generated always as identity primary key,
    address text,
    item text references stock
);
insert into stock values ('green tea', 10), ('cup', 1) on conflict do nothing;
create table if not exists reader (address text primary key);
insert into reader select 'reader' || n || '@example.org' from generate_series(1, 200) n
on conflict do nothing;
"""


def create_tables(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(TABLES)


def place_order(address: str, item: str, language: str = "en") -> int:
    """Store the order, enqueue its receipt, and take the item out of the stock."""
    with psycopg.connect(app.url) as connection:  # one transaction
        [(order_id,)] = connection.execute(
            "insert into orders (address, item) values (%s, %s) returning id", [address, item]
        ).fetchall()
        send_receipt.using(connection).enqueue(order_id, language)
        connection.execute("update stock set pieces = pieces - 1 where item = %s", [item])
    return int(order_id)


@app.schedule("nightly-stock", "0 2 * * *", timezone="Europe/Stockholm")
@app.job(takes_context=True)
def report_stock(ctx: rota.Context) -> str:
    """Write what is left of each item into a file of the day."""
    day = (ctx.scheduled_for or ctx.job.created_at).date()
    with psycopg.connect(app.url) as connection:
        rows = connection.execute("select item, pieces from stock order by item").fetchall()
    path = Path(f"reports/{day}.csv")
    path.parent.mkdir(exist_ok=True)
    with rota.write_file(path, mode="w") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@app.job(takes_context=True, unique="newsletter:{subject}")
def send_newsletter(ctx: rota.Context, subject: str) -> str:
    with psycopg.connect(app.url) as connection:
        readers = connection.execute("select address from reader order by address").fetchall()
    for number, (address,) in enumerate(readers, 1):
        ctx.raise_if_cancelled()
        key = f"newsletter:{subject}:{address}"
        mail = ctx.effect(key, safe=(FileNotFoundError,), if_uncertain="skip")
        mail.call(deliver, address, subject)
        ctx.progress(number, len(readers), "mails")
    return f"mailed {len(readers)} readers"
