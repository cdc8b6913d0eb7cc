"""Adds a column and an option to a copy of the tree, by the steps of CONTRIBUTING.md.

Part of `make nightly`: counts the files that each touches, shows that the column comes to handlers,
history and search, and the option to Python and SQL, and runs the smoke tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 6
"""Files of `src` that one of them may touch."""
SCHEMA = "src/rota/store/schema"
TABLES = f"{SCHEMA}/migrations/0001_tables.sql"

Step = tuple[str, str, str]
"""A file, a text that stands there once, and what stands in its place then."""

COLUMN: list[Step] = [
    (TABLES, "  progress jsonb,     ", "  tag text,\n  progress jsonb,     "),
    (TABLES, "\n);\n\ncreate index job_ready", ",\n  tag text\n);\n\ncreate index job_ready"),
    (f"{SCHEMA}/views/jobs.sql", "  j.result, j.release,", "  j.tag, j.result, j.release,"),
    ("src/rota/store/columns.py", "CONTENT = (\n", 'CONTENT = (\n    "tag",\n'),
    (
        "src/rota/model/job.py",
        "    locked_by: str | None = None\n",
        "    tag: str | None = None\n    locked_by: str | None = None\n",
    ),
]
OPTION: list[Step] = [
    (
        TABLES,
        "  queue text not null default",
        "  tone text default 'low',\n  queue text not null default",
    ),
    (
        "src/rota/declare/options.py",
        "    transactional: bool\n",
        '    tone: Literal["low", "high"]\n    """How loud."""\n    transactional: bool\n',
    ),
    (
        "src/rota/declare/options.py",
        "    transactional: bool = option(",
        '    tone: str = option("low", choice("low", "high"))\n    transactional: bool = option(',
    ),
]

PROOF = """
import rota
from rota import embedded
from rota.store.migrate import migrate
from pathlib import Path
import sys, psycopg

url = embedded.start(Path(sys.argv[1]))
try:
    migrate(url)
    app = rota.App(url)
    seen = []

    @app.job("t", tone="high", takes_context=True)
    def t(ctx):
        seen.append(ctx.job.tag)

    app.sync()
    with psycopg.connect(url, autocommit=True) as connection:
        [job] = connection.execute(
            "insert into rota.job (job_type, tag) values ('t', 'blue') returning id"
        ).fetchone()
        app.drain()
        [again] = connection.execute(
            "select new_id from rota.job_run_again(array[%s::bigint])", [job]
        ).fetchone()
        [anew] = connection.execute(
            "select r.new_id from rota.job_discard(array[%s::bigint]) b, "
            "rota.job_requeue(array[b.id]) r",
            [again],
        ).fetchone()
        [tone] = connection.execute("select tone from rota.job_type where name = 't'").fetchone()
        connection.execute("select rota.worker_declare('s', tone => 'high')")
        try:
            connection.execute("select rota.worker_declare('s', tone => 'shrill')")
        except psycopg.errors.InvalidParameterValue as error:
            assert "tone must be low or high" in str(error)
        else:
            raise AssertionError("SQL took a tone that there is not")
    assert app.get(job).tag == "blue" and app.find(status="succeeded")[0].to_dict()["tag"] == "blue"
    assert app.get(again).tag == app.get(anew).tag == "blue"
    assert seen == ["blue"] and tone == "high"
    try:
        app.job("u", tone="shrill")
    except rota.errors.DeclarationError:
        pass
    else:
        raise AssertionError("Python took a tone that there is not")
finally:
    embedded.stop(Path(sys.argv[1]))
"""


def main() -> int:
    """Print how many files each touches; return 1 if that is too many, or something fails."""
    with tempfile.TemporaryDirectory(prefix="rota-grow-") as directory:
        place = Path(directory) / "tree"
        shutil.copytree(
            ROOT, place, ignore=shutil.ignore_patterns(".*", "__pycache__", "node_modules")
        )
        counts = {name: take(place, steps) for name, steps in STEPS.items()}
        for name, count in counts.items():
            print(f"{count:4}  files that a new {name} touches (at most {MOST})")
        done = [
            run(place, "-c", PROOF, str(Path(directory) / "server")),
            run(place, "-m", "pytest", "-q", "-n", "2", "-m", "smoke", "-p", "no:cacheprovider"),
        ]
    return 1 if any(done) or any(count > MOST for count in counts.values()) else 0


STEPS = {"column of job": COLUMN, "option of a job type": OPTION}


def take(place: Path, steps: list[Step]) -> int:
    """Take the steps in a copy; return how many files they touch."""
    for name, there, then in steps:
        file = place / name
        text = file.read_text(encoding="utf-8")
        assert text.count(there) == 1, f"{name} has this {text.count(there)} times: {there!r}"
        file.write_text(text.replace(there, then), encoding="utf-8")
    return len({name for name, _, _ in steps})


def run(place: Path, *arguments: str) -> int:
    """Run Python with the code of the copy; print what it says if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
