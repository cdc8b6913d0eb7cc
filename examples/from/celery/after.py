from datetime import datetime, timedelta, UTC

import rota

app = rota.App()


class ProviderDown(Exception): ...


@app.job(
    takes_context=True,
    queue="mail",
    retry=rota.Exponential("1s", jitter=0),
    max_attempts=4,
    timeout="20s",
)
def send_mail(ctx: rota.Context, user: str) -> None:
    if user == "bob" and ctx.job.attempts == 1:
        raise ProviderDown
    print(f"mail to {user}, attempt {ctx.job.attempts}", flush=True)


@app.schedule("digest", "0 7 * * *", timezone="Europe/Stockholm")
@app.job
def digest() -> None:
    print("digest sent", flush=True)


@app.job
def square(number: int) -> int:
    return number * number


@app.job
def add_up(numbers: list[int]) -> None:
    print(f"sum {sum(numbers)}", flush=True)


@app.job
def show(number: int) -> None:
    print(f"square {number}", flush=True)


if __name__ == "__main__":
    send_mail.enqueue("ada")
    send_mail.enqueue("bob")
    send_mail.using(run_at=datetime.now(UTC) + timedelta(seconds=1)).enqueue("eve")
    squares = [square.new(number) for number in range(4)]
    app.batch(squares, then=add_up.new(rota.results_of(squares)))
    first = square.new(3)
    app.enqueue(first, then=show.new(rota.result_of(first)))
