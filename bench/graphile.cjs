// Drains graphile-worker's queue of no-op jobs in one process and says how long it took: node graphile.cjs URL CONCURRENCY, or `migrate` in place
// of the concurrency. From just before the first fetch to when everything is written and the pool has ended, as bench/worker.py measures Rota.
"use strict";
const { EventEmitter } = require("node:events");
const { runMigrations, runOnce, Logger } = require("graphile-worker");

const [url, concurrency] = process.argv.slice(2);
process.stdin.on("end", () => process.exit(1)).resume(); // the benchmark is gone
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

async function main() {
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
