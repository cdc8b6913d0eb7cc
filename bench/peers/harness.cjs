// The same command line as harness.py, for systems in JavaScript: node NAME.cjs SETUP VERB …
"use strict";
const fs = require("node:fs");

const EACH = 100; // as in ledger.py
const BULK = 1000;
const CALL_S = 0.05;
const seconds = Number(process.env.PEERS_SECONDS ?? 0);
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (s) => new Promise((done) => setTimeout(done, s * 1000));
const range = (first, end) => Array.from({ length: end - first }, (_, at) => first + at);

let file;
let counted = 0;
const write = (kind, n) => {
  file ??= fs.openSync(process.env.PEERS_LEDGER, "a");
  fs.writeSync(file, `${kind} ${n} ${process.pid} ${now().toFixed(6)}\n`);
};

const count = (jobs = 1) => {
  for (let at = 0; at < jobs; at++) if (++counted % EACH === 1) write("count", counted);
  if (jobs > 1) write("count", counted);
};

const handlers = {
  noop: async () => count(),
  stamp: async (n) => write("begin", n),
  work: async (n) => {
    write("begin", n);
    await sleep(seconds);
    write("end", n);
  },
};

async function enqueue(system, form, forS) {
  let next = 0;
  const turn = async () => {
    if (form === "single") await system.one("noop", next++);
    else if (form === "transaction") await system.inTransaction(next++);
    else {
      await system.bulk("noop", range(next, next + BULK));
      next += BULK;
      return BULK;
    }
    return 1;
  };
  if (form === "transaction" && !system.inTransaction) return null;
  await turn(); // the connection, and the plan of the statement
  let jobs = 0;
  let took = 0;
  const began = performance.now();
  while (took < forS) {
    jobs += await turn();
    took = (performance.now() - began) / 1000;
  }
  return jobs / took;
}

async function pace(system, kind, rate, total) {
  const committed = [];
  let dueAt = performance.now();
  for (let n = 0; n < total; n++) {
    await sleep(Math.max(0, dueAt - performance.now()) / 1000);
    dueAt += 1000 / rate;
    await system.one(kind, n);
    committed.push(now());
  }
  return committed;
}

async function keepSteady(system, kind, rate, forS, first) {
  const each = Math.max(1, Math.round(rate * CALL_S));
  const calls = [];
  const began = performance.now();
  const cpu = process.cpuUsage();
  for (let at = 0; at < Math.max(1, Math.round((forS * rate) / each)); at++) {
    await sleep(Math.max(0, began + (at * each * 1000) / rate - performance.now()) / 1000);
    await system.bulk(kind, range(first, first + each));
    calls.push([first, each, now()]);
    first += each;
  }
  const tookS = (performance.now() - began) / 1000;
  const { user, system: kernel } = process.cpuUsage(cpu);
  return { calls, took_s: tookS, cpu_s: (user + kernel) / 1e6 };
}

async function run(system, verb, given) {
  if (verb === "prepare") return system.prepare();
  if (verb === "work") return system.work(given[0] && Number(given[0]));
  await system.open();
  try {
    if (verb === "fill") {
      const [kind, total] = [given[0], Number(given[1])];
      for (let first = 0; first < total; first += BULK)
        await system.bulk(kind, range(first, Math.min(first + BULK, total)));
      return null;
    }
    if (verb === "steady") return await keepSteady(system, given[0], ...given.slice(1).map(Number));
    if (verb === "pace") return await pace(system, given[0], Number(given[1]), Number(given[2]));
    return await enqueue(system, verb, Number(given[0]));
  } finally {
    await system.close();
  }
}

module.exports = {
  handlers,
  count,
  main: (make) => {
    const [setup, verb, ...given] = process.argv.slice(2);
    run(make(setup, process.env.PEERS_URL), verb, given).then(
      (said) => {
        // A pipe takes 64 KiB at once: exit when all of it is read.
        process.stdout.write(`${JSON.stringify(said ?? null)}\n`, () => process.exit(0));
      },
      (error) => {
        console.error(error);
        process.exit(1);
      },
    );
  },
};
