"""Jobs that cron runs: no worker, no web framework, one file.

    python3 -m venv .venv && .venv/bin/pip install 'rota[embedded]'
    .venv/bin/rota migrate --app night:app
    * * * * *  cd PATH && .venv/bin/rota work --app night:app --drain --for 50s

With the third line in `crontab -e` what is due runs once a minute; a crash, or a run that is late,
loses nothing. ROTA_DATABASE_URL names your PostgreSQL; without it, Rota keeps a private one in
.rota/ beside this file.
"""

import time
from pathlib import Path

import rota

app = rota.App()
INBOX, DONE = Path(__file__).parent / "inbox", Path(__file__).parent / "done"


# The key is held while the job is queued, runs or is retried: asking twice reads a file once, and
# another file of the name can come tomorrow.
@app.job(unique=rota.Unique("{name}", scope="live"), retry=rota.Delays("1m", "5m", "30m"))
def take_in(name: str) -> int:
    """Read a file that came, and put it aside:

    rota enqueue take_in --payload '{"name": "a.csv"}' --app night:app
    """
    file = INBOX / Path(name).name
    if not file.exists() and (DONE / file.name).exists():
        return 0  # a run before this one was killed after its last line
    lines = len(file.read_text().splitlines())
    DONE.mkdir(exist_ok=True)
    file.touch()  # its week in that folder begins
    file.replace(DONE / file.name)
    return lines


@app.schedule("nightly", "0 2 * * *", timezone="Europe/Stockholm")
@app.job(max_attempts=3, timeout="10m")
def clean_up() -> int:
    """Delete what was put aside a week ago; a second run finds nothing left to do."""
    week_ago = time.time() - 7 * 86_400
    old = [file for file in DONE.glob("*") if file.stat().st_mtime < week_ago]
    for file in old:
        file.unlink(missing_ok=True)
    return len(old)
