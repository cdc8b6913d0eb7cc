import rota

app = rota.App()


class ProviderDown(Exception): ...


@app.job(
    takes_context=True,
    queue="mail",
    timeout="20s",
    retry=rota.Fixed("1s", jitter=0),
    max_attempts=4,
)
def send_mail(ctx: rota.Context, user: str) -> None:
    if user == "bob" and ctx.job.attempts == 1:
        raise ProviderDown
    print(f"mail to {user}", flush=True)


@app.job
def make_report(month: str) -> str:
    print(f"report of {month}", flush=True)
    return f"/reports/{month}.pdf"


@app.job
def mail_report(month: str) -> None:
    print(f"report of {month} mailed", flush=True)


if __name__ == "__main__":
    send_mail.enqueue("ada")
    send_mail.enqueue("bob")
    send_mail.using(delay="1s").enqueue("eve")
    app.enqueue(make_report.new("may"), then=mail_report.new("may"))
