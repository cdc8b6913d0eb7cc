// pg-boss, run by pg_boss.py's benchmark. It polls: half a second is the least that it takes.
"use strict";
const required = require("pg-boss");
const { Pool } = require("pg");
const { handlers, main } = require("../harness.cjs");

const PgBoss = required.PgBoss ?? required; // a class of its own until 10, a named export later
const BATCH = 1000;
const POLL_S = 0.5;
const EACH_SLOT = 5; // it fetches twice a second, so with 50 it is about as fast as ten slots

main((setup, connectionString) => {
  const lease = process.env.PEERS_LEASE && Number(process.env.PEERS_LEASE);
  const boss = new PgBoss({
    connectionString,
    max: 10,
    ...(lease ? { maintenanceIntervalSeconds: 1 } : {}),
  });
  boss.on("error", (error) => console.error(error.message));
  const given = lease ? { expireInSeconds: lease, retryLimit: 5 } : {};
  let pool;
  return {
    prepare: async () => {
      await boss.start();
      for (const kind of Object.keys(handlers)) await boss.createQueue(kind, { name: kind });
      await boss.stop({ graceful: false });
    },
    open: async () => {
      pool = new Pool({ connectionString, max: 1 });
      await boss.start();
    },
    close: async () => {
      await pool.end();
      await boss.stop({ graceful: false });
    },
    one: (kind, n) => boss.send(kind, { n }, given),
    bulk: (kind, numbers) => boss.insert(numbers.map((n) => ({ name: kind, data: { n }, ...given }))),
    inTransaction: async (n) => {
      const client = await pool.connect();
      const db = { executeSql: (text, values) => client.query(text, values) };
      try {
        await client.query("begin");
        await client.query("insert into application (n) values ($1)", [n]);
        await boss.send("noop", { n }, { db });
        await client.query("commit");
      } finally {
        client.release();
      }
    },
    work: async (slots) => {
      await boss.start();
      for (const [kind, handle] of Object.entries(handlers)) {
        const all = (jobs) => Promise.all(jobs.map((job) => handle(job.data.n)));
        if (setup === "defaults" && !slots) await boss.work(kind, all);
        else
          await boss.work(
            kind,
            { batchSize: slots ? EACH_SLOT * slots : BATCH, pollingIntervalSeconds: POLL_S },
            all,
          );
      }
      await new Promise(() => {});
    },
  };
});
