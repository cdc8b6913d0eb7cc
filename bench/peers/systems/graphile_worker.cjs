// graphile-worker, run by graphile_worker.py's benchmark. Its batched settings are those of its own
// performance test.
"use strict";
const { run, runMigrations, makeWorkerUtils, Logger } = require("graphile-worker");
const { Pool } = require("pg");
const { handlers, main } = require("../harness.cjs");

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const SLOTS = 100;
const LOCAL = 500;

main((setup, connectionString) => {
  let utils;
  let pool;
  return {
    prepare: () => runMigrations({ connectionString, logger }),
    open: async () => {
      pool = new Pool({ connectionString, max: 4 });
      pool.on("error", (error) => console.error(error.message));
      utils = await makeWorkerUtils({ pgPool: pool, logger });
    },
    close: async () => {
      await utils.release();
      await pool.end();
    },
    one: (kind, n) => utils.addJob(kind, { n }),
    bulk: (kind, numbers) =>
      utils.addJobs(numbers.map((n) => ({ identifier: kind, payload: { n } }))),
    inTransaction: async (n) => {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await client.query("insert into application (n) values ($1)", [n]);
        await client.query("select graphile_worker.add_job($1, $2)", ["noop", { n }]);
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    work: async (slots) => {
      const best = {
        concurrentJobs: slots ?? SLOTS,
        maxPoolSize: (slots ?? SLOTS) + 2,
        localQueue: { size: slots ?? LOCAL },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      };
      const plain = slots ? { concurrentJobs: slots } : {};
      const runner = await run({
        preset: {
          worker: { connectionString, logger, ...(setup === "defaults" ? plain : best) },
        },
        taskList: Object.fromEntries(
          Object.entries(handlers).map(([kind, handle]) => [kind, ({ n }) => handle(n)]),
        ),
      });
      await runner.promise;
    },
  };
});
