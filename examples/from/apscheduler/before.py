import os
from datetime import datetime, timedelta

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.blocking import BlockingScheduler

scheduler = BlockingScheduler(
    jobstores={"default": SQLAlchemyJobStore(url=os.environ["DATABASE_URL"])},
    executors={"default": ThreadPoolExecutor(10)},
    job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
    timezone="Europe/Stockholm",
)


def clean_up():
    print("cleaned up", flush=True)


def remind(user):
    print(f"reminded {user}", flush=True)


if __name__ == "__main__":
    scheduler.add_job(
        clean_up, "cron", hour=2, minute=30, id="clean-up", replace_existing=True, jitter=60
    )
    in_a_second = datetime.now(scheduler.timezone) + timedelta(seconds=1)
    scheduler.add_job(
        remind, "date", run_date=in_a_second, args=["ada"], id="ada", replace_existing=True
    )
    scheduler.start()
