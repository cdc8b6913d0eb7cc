// node graphile.cjs URL CONCURRENCY drains graphile-worker's queue of no-op jobs in one process and
// says how long it took: from just before the first fetch to when everything is written and the
// pool has ended, as bench/worker.py measures Rota. node graphile.cjs URL migrate makes its schema.
// node graphile.cjs URL enqueue BULK SECONDS [keyed] inserts jobs and says how many a second.
"use strict";
const { EventEmitter } = require("node:events");
const { makeWorkerUtils, runMigrations, runOnce, Logger } = require("graphile-worker");

const [url, concurrency] = process.argv.slice(2);
process.stdin.on("end", () => process.exit(1)).resume(); // the benchmark is gone
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

async function enqueue(bulk, seconds, keyed) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  let next = 0;
  const add = () =>
    utils.addJobs(
      Array.from({ length: bulk }, () => ({
        identifier: "noop",
        payload: { n: next++ },
        ...(keyed ? { jobKey: `bench:${next}` } : {}),
      })),
    );
  await add(); // the connection
  const began = process.hrtime.bigint();
  let jobs = 0;
  let took = 0;
  while (took < seconds) {
    await add();
    jobs += bulk;
    took = Number(process.hrtime.bigint() - began) / 1e9;
  }
  await utils.release();
  console.log(JSON.stringify({ per_second: jobs / took }));
}

async function main() {
  if (concurrency === "enqueue") {
    const [bulk, seconds, keyed] = process.argv.slice(4);
    return enqueue(Number(bulk), Number(seconds), keyed === "keyed");
  }
  if (concurrency === "migrate") return runMigrations({ connectionString: url, logger });
  let began = 0n;
  const events = new EventEmitter();
  events.on("pool:create", () => (began = process.hrtime.bigint()));
  const cpu = process.cpuUsage();
  await runOnce({
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: Number(concurrency),
        maxPoolSize: Number(concurrency) + 2, // what its documentation asks for; it opens no more than it needs
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger,
        events,
      },
    },
    taskList: { noop: async () => {} },
    noHandleSignals: true,
  });
  const used = process.cpuUsage(cpu);
  console.log(JSON.stringify({ took_s: Number(process.hrtime.bigint() - began) / 1e9, cpu_s: (used.user + used.system) / 1e6 }));
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
