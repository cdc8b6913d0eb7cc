import os
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry, get_current_job

connection = Redis.from_url(os.environ["REDIS_URL"])
queue = Queue("mail", connection=connection)


class ProviderDown(Exception): ...


def send_mail(user):
    job = get_current_job()
    if user == "bob" and job.retries_left == 3:
        raise ProviderDown
    print(f"mail to {user}", flush=True)


def make_report(month):
    print(f"report of {month}", flush=True)
    return f"/reports/{month}.pdf"


def mail_report(month):
    print(f"report of {month} mailed", flush=True)


def main():
    queue.enqueue(send_mail, "ada", job_timeout=20, retry=Retry(max=3, interval=1))
    queue.enqueue(send_mail, "bob", job_timeout=20, retry=Retry(max=3, interval=1))
    queue.enqueue_in(timedelta(seconds=1), send_mail, "eve", retry=Retry(max=3, interval=1))
    report = queue.enqueue(make_report, "may", result_ttl=86400)
    queue.enqueue(mail_report, "may", depends_on=report)
