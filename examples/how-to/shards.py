import hashlib
import os

import psycopg
import rota

NAMES = ["shard1", "shard2", "shard3", "shard4"]
OPEN = os.environ.get("SHARDS_OPEN", " ".join(NAMES)).split()


def find_url() -> str:
    return os.environ.get("ROTA_DATABASE_URL", f"service={NAMES[0]}")


app = rota.App(find_url, require_connection=True)


@app.job(unique="invoice:{number}", ordered="{account}")
def send_invoice(number: int, account: str) -> None:
    with rota.context().transaction() as connection:
        connection.execute("insert into invoice values (%s, %s)", [number, account])
        send_receipt.using(connection).enqueue(number, account)


@app.job
def send_receipt(number: int, account: str) -> str:
    return f"receipt of invoice {number} for {account}"


def find_shard(key: str) -> str:
    def weigh(name: str) -> bytes:
        return hashlib.sha256(f"{name}/{key}".encode()).digest()

    return max(OPEN, key=weigh)


def send(number: int, account: str) -> tuple[str, int]:
    shard = find_shard(account)
    with psycopg.connect(f"service={shard}") as connection:
        return shard, send_invoice.using(connection).enqueue(number, account).id


def read_status(shard: str, job: int) -> str:
    with psycopg.connect(f"service={shard}") as connection:
        return app.get(job, connection=connection).status
