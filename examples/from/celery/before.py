import os
from datetime import datetime, timedelta, UTC

from celery import Celery, chain, chord
from celery.schedules import crontab

app = Celery("shop", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
app.conf.task_routes = {"send_mail": {"queue": "mail"}}
app.conf.timezone = "Europe/Stockholm"
app.conf.beat_schedule = {"digest": {"task": "digest", "schedule": crontab(minute=0, hour=7)}}


class ProviderDown(Exception): ...


@app.task(
    name="send_mail",
    bind=True,
    autoretry_for=(ProviderDown,),
    retry_backoff=1,
    retry_jitter=False,
    max_retries=3,
    time_limit=20,
    acks_late=True,
)
def send_mail(self, user):
    if user == "bob" and self.request.retries == 0:
        raise ProviderDown
    print(f"mail to {user}, attempt {self.request.retries + 1}", flush=True)


@app.task(name="digest")
def digest():
    print("digest sent", flush=True)


@app.task(name="square")
def square(number):
    return number * number


@app.task(name="add_up")
def add_up(numbers):
    print(f"sum {sum(numbers)}", flush=True)


@app.task(name="show")
def show(number):
    print(f"square {number}", flush=True)


if __name__ == "__main__":
    send_mail.delay("ada")
    send_mail.delay("bob")
    send_mail.apply_async(("eve",), eta=datetime.now(UTC) + timedelta(seconds=1))
    chord(square.s(number) for number in range(4))(add_up.s())
    chain(square.s(3), show.s())()
