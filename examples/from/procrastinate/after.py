import rota

app = rota.App()


class ProviderDown(Exception): ...


@app.job(
    queue="mail",
    takes_context=True,
    retry=rota.Fixed("1s", jitter=0),
    retry_on=(ProviderDown,),
    max_attempts=4,
)
async def send_mail(ctx: rota.Context, user: str) -> None:
    if user == "bob" and ctx.job.attempts == 1:
        raise ProviderDown
    print(f"mail to {user}", flush=True)


@app.job(unique=rota.Unique(lambda: "crm", scope="pending"), ordered=lambda: "crm")
async def sync() -> None:
    print("synchronized", flush=True)


@app.schedule("clean_up", "30 2 * * *")
@app.job(takes_context=True)
async def clean_up(ctx: rota.Context) -> None:
    print("cleaned up", flush=True)  # ctx.scheduled_for is the time that Procrastinate passes


if __name__ == "__main__":
    send_mail.enqueue("ada")
    send_mail.enqueue("bob")
    send_mail.using(delay="1s").enqueue("eve")
    sync.enqueue()
