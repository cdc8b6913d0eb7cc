import asyncio
import statistics
import sys
import time

import psycopg
import rota

app = rota.App(schema="rota_load_test")  # beside the schema of your jobs


@app.job
async def work(number: int) -> None:
    await asyncio.sleep(0)  # put in what your jobs do


async def measure(jobs: int) -> None:
    began = time.perf_counter()
    for first in range(0, jobs, 1000):
        numbers = range(first, min(first + 1000, jobs))
        await app.aenqueue_many([work.new(number) for number in numbers])
    enqueued = time.perf_counter()
    done = await app.adrain(concurrency=100)
    drained = time.perf_counter()
    print(f"enqueued {jobs / (enqueued - began):,.0f} a second, in calls of 1,000")
    print(f"drained  {done.succeeded / (drained - enqueued):,.0f} a second, in one process")
    worker = asyncio.create_task(app.arun())
    waits: list[float] = []
    for number in range(100):
        job = await app.ajoin((await work.aenqueue(number)).id)
        if job.started_at is not None:
            waits.append((job.started_at - job.created_at).total_seconds() * 1000)
    print(f"started  {statistics.median(waits):.1f} ms after the enqueue (median of {len(waits)})")
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await app.aclose()


if __name__ == "__main__":
    app.migrate()
    try:
        asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
    finally:
        with psycopg.connect(app.url) as connection:
            connection.execute("drop schema rota_load_test cascade")
