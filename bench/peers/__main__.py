"""`python -m bench.peers [--only NAME,…] [--rounds N] [--seconds S] [--json FILE]`; see `make
peers`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from bench import place
from bench.peers.page import OWN, write
from bench.peers.run import play
from bench.peers.scenarios import SCENARIOS
from bench.peers.stage import Scale
from bench.peers.systems import NAMES, load
from tests.support.guard import forget_databases

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 2_400
"""The whole run ends after this, whatever is left."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", default="", help="scenarios and systems, separated by commas: "
                        f"{', '.join((*SCENARIOS, *NAMES))}; Rota always takes part")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=Scale().rounds)
    parser.add_argument("--jobs", type=int, default=Scale().jobs, help="no-op jobs of a drain")
    parser.add_argument("--seconds", type=float, help="the longest measurement")
    parser.add_argument("--backlog", type=int, default=Scale().backlog_jobs,
                        help="jobs that wait in the scenario `backlog`")  # fmt: skip
    parser.add_argument("--crash-jobs", type=int, default=Scale().crash_jobs,
                        help="jobs that run during a crash")  # fmt: skip
    parser.add_argument("--steady", type=float, default=Scale().steady_s,
                        help="seconds of the scenario `steady`")  # fmt: skip
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of the whole run")
    parser.add_argument("--json", type=Path, default=ROOT / ".peers" / "peers.json",
                        help="where to write the JSON; the page stands beside it")  # fmt: skip
    place.add_option(parser)
    asked = parser.parse_args()
    names = [name for name in asked.only.split(",") if name]
    systems = load()
    known = {
        *SCENARIOS,
        *(system.name for system in systems),
        *(system.module for system in systems),
    }
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    forget_databases()
    signal.signal(signal.SIGTERM, _terminate)
    named = [system for system in systems if system.name in names or system.module in names]
    chosen = (
        [system for system in systems if system.name == OWN or system in named]
        if named
        else systems
    )
    scenarios = [SCENARIOS[name] for name in names if name in SCENARIOS]
    scale = replace(
        Scale(),
        rounds=asked.rounds,
        jobs=asked.jobs,
        backlog_jobs=asked.backlog,
        crash_jobs=asked.crash_jobs,
        steady_s=asked.steady,
    )
    if asked.seconds is not None:
        scale = scale.shorten(asked.seconds)
    document = play(chosen, scenarios or [*SCENARIOS.values()], scale, asked.limit,
                    memory=asked.memory)  # fmt: skip
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")
    page = asked.json.with_suffix(".html")
    page.write_text(write(document), "utf-8")
    print(f"{page}: took {document['took_s']:,} s; the machine was {document['load']}")
    return 1 if document["failed"] else 0


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(143)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
