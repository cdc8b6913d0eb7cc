// Keeps an open page new: what changed is changed in place, so that focus, selection, open details
// and half-filled forms stay. It asks again after WAIT_MS or COSTS times what the page cost the
// server, whichever is longer; a hidden tab asks nothing.
"use strict";
(() => {
  // No field of a form is called "id": it would hide the id by which a form is found again.
  const WAIT_MS = 2000, COSTS = 100, FAILED_MS = 60000, ANSWER_MS = 30000;
  const bar = document.getElementById("live");
  if (!bar) return;
  const [said, button] = bar.children;
  let updated = Date.now(), asked = updated, isPaused = false, isAsking = false, failed = 0;
  let costMs, waitMs;

  const words = (ms) => ms < 100000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60000)} min`;

  function readCost() {
    costMs = Number(document.getElementById("cost").value);
    waitMs = Math.max(WAIT_MS, COSTS * costMs);
    failed = 0;
  }

  function say() {
    const age = `updated ${words(Date.now() - updated)} ago`;
    const pace = waitMs > WAIT_MS ? `: costs ${costMs} ms` : "";
    const now = failed ? `the server does not answer; ${age}`
      : isPaused ? `paused; ${age}` : `${age}, every ${words(waitMs)}${pace}`;
    if (said.textContent !== now) said.textContent = now;
    bar.classList.toggle("failed", failed > 0);
  }

  async function ask() {
    isAsking = true;
    asked = Date.now();
    try {
      const answer = await fetch(location.href, {
        headers: { "HX-Request": "true" }, redirect: "error", signal: AbortSignal.timeout(ANSWER_MS),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(answer.status);
      if (isPaused) return;
      const main = document.getElementById("main");
      await htmx.swap({ text, target: main, sourceElement: main, select: "#main", swap: "outerMorph" });
      updated = Date.now();
      readCost();
    } catch {
      failed += 1;
      waitMs = Math.min(2 * waitMs, Math.max(waitMs, FAILED_MS));
    } finally {
      isAsking = false;
      say();
    }
  }

  function tick() {
    say();
    if (!isPaused && !isAsking && !document.hidden && Date.now() - asked >= waitMs) ask();
  }

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) asked = 0;
    tick();
  });
  readCost();
  say();
  bar.hidden = false;
  document.addEventListener("visibilitychange", tick);
  setInterval(tick, 500);
})();
