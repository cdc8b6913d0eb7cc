import os

from procrastinate import App, PsycopgConnector, RetryStrategy

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


class ProviderDown(Exception): ...


@app.task(
    name="send_mail",
    queue="mail",
    pass_context=True,
    retry=RetryStrategy(max_attempts=3, wait=1, retry_exceptions={ProviderDown}),
)
async def send_mail(context, user):
    if user == "bob" and context.job.attempts == 0:
        raise ProviderDown
    print(f"mail to {user}", flush=True)


@app.task(name="sync", lock="crm", queueing_lock="crm")
async def sync():
    print("synchronized", flush=True)


@app.periodic(cron="30 2 * * *")
@app.task(name="clean_up")
async def clean_up(timestamp):
    print("cleaned up", flush=True)


if __name__ == "__main__":
    with app.open():
        send_mail.defer(user="ada")
        send_mail.defer(user="bob")
        send_mail.configure(schedule_in={"seconds": 1}).defer(user="eve")
        sync.defer()
