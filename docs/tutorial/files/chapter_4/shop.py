from pathlib import Path

import psycopg
import rota

app = rota.App()
OUTBOX = Path("outbox/mails.txt")


@app.job(max_attempts=4, retry=rota.Delays("1m", "10m", "1h"), timeout="20s")
def send_receipt(order_id: int) -> str:
    with psycopg.connect(app.url) as connection:
        [(address, item)] = connection.execute(
            "select address, item from orders where id = %s", [order_id]
        ).fetchall()
    if "@" not in address:
        raise rota.Dead(f"{address} is not a mail address")
    deliver(address, f"Thank you for your order: {item}.")
    return f"mailed {address}"


def deliver(address: str, text: str) -> None:
    """Send a mail. In this tutorial a file plays the mail server."""
    with OUTBOX.open("a") as mails:
        mails.write(f"To {address}: {text}\n")


TABLES = """
create table if not exists stock (item text primary key, pieces int check (pieces >= 0));
create table if not exists orders (
    id int generated always as identity primary key,
    address text,
    item text references stock
);
insert into stock values ('green tea', 10), ('cup', 1) on conflict do nothing;
"""


def create_tables(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(TABLES)


def place_order(address: str, item: str) -> int:
    """Store the order, enqueue its receipt, and take the item out of the stock."""
    with psycopg.connect(app.url) as connection:  # one transaction
        [(order_id,)] = connection.execute(
            "insert into orders (address, item) values (%s, %s) returning id", [address, item]
        ).fetchall()
        send_receipt.using(connection).enqueue(order_id)
        connection.execute("update stock set pieces = pieces - 1 where item = %s", [item])
    return int(order_id)
