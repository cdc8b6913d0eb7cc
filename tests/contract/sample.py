from datetime import date, datetime, timedelta
import psycopg, rota

jobs = rota.Jobs()                                   # app-less, like a router

@jobs.job("send_welcome_email", queue="email", max_attempts=8, timeout="20s", lease="2m", expires="1d",
          retry=rota.Exponential(base="10s", cap="30m"), retry_on=(OSError,), fatal_on=(LookupError,))
async def send_welcome_email(user_id: int, template: str = "welcome") -> dict[str, str]:
    return {"message_id": f"<{rota.context().job.origin_id}@example.com>"}

@jobs.job("rebuild_report", takes_context=True)      # Django's spelling; a plain function runs in a thread
def rebuild_report(ctx: rota.Context, day: date) -> None:
    ctx.raise_if_cancelled()

app = rota.App(jobs=[jobs])                          # ROTA_DATABASE_URL; connects to nothing until first used
# rota.App("postgresql://…", schema="rota", lease="2m", jobs=[jobs, "myproject.billing:jobs"], release="2026.11.20")

def sign_up(conn: psycopg.Connection, user_id: int, monday: datetime) -> list[rota.Enqueued]:
    send_welcome_email.using(connection=conn, key=f"welcome_email:user:{user_id}").enqueue(user_id=user_id)
    return app.enqueue_many([rebuild_report.new(day=date(2026, 1, 14)),
                             send_welcome_email.new(user_id).using(run_at=monday, priority=5)], connection=conn)

send_welcome_email.enqueue(user_id=42)               # -> Enqueued(id, created, status)
send_welcome_email.enqueue_many([{"user_id": 1}, {"user_id": 2}])
# await send_welcome_email.aenqueue(user_id=42); .using(delay="10m"); .func(42) is the function as written
# app.drain(); app.run(queues={"email": 20, "default": 10}); await app.arun(); app.get(id); app.find(status="dead")
