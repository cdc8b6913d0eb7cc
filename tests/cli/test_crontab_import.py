"""What `rota crontab --import` prints is Python that runs what cron ran."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli import run
from rota.cli.crontab_import import convert_crontab, find_zone
from rota.declare.program import run_program, split_program

CRONTAB = r"""# the shop's jobs
SHELL=/bin/bash
MAILTO="ops@example.com"

0 3 * * *   pg_dump --file /backup/shop.dump shop
@daily cd /srv/shop && ./manage.py clearsessions >> /tmp/x 2>&1
PATH=/usr/local/bin:/usr/bin:/bin
'LANG' = "C.UTF-8"
CRON_TZ=Europe/Stockholm
*/5 8-18 * * mon-fri /usr/bin/python3 /srv/sync.py --day "$(date +\%F)"
@every 90s /opt/beat
*/5 * * * * flock -n /run/x.lock nice -n 5 /opt/sync.sh a%first line%second
@reboot /usr/bin/tunnel
CRON_TZ=Mars
61 * * * * wrong
* * * * *
"""


def declare(text: str) -> rota.App:
    """Run what is printed; return the App that it makes."""
    names: dict[str, Any] = {"__name__": "commands"}
    exec(compile(text, "commands.py", "exec"), names)
    app = names["app"]
    assert isinstance(app, rota.App)
    return app


def read_programs(printed: str) -> list[list[str]]:
    """Return the words of each command that is declared."""
    found: list[list[str]] = []

    class Listening:
        def command(self, name: str, program: Any, **options: Any) -> None:
            found.append(split_program(program))

    exec(printed.replace("rota.App()", "listening"), {"listening": Listening()})
    return found


def test_the_lines_of_a_crontab_become_commands_with_their_times_zones_and_names() -> None:
    printed = convert_crontab(CRONTAB, "x.cron", "America/New_York")
    app = declare(printed)
    schedules = {name: (entry.cron, entry.timezone) for name, entry in app._own._schedules.items()}
    assert schedules == {
        "pg_dump": ("0 3 * * *", "America/New_York"),
        "manage": ("@daily", "America/New_York"),
        "sync": ("*/5 8-18 * * mon-fri", "Europe/Stockholm"),
        "beat": ("@every 90s", "Europe/Stockholm"),
        "sync-2": ("*/5 * * * *", "Europe/Stockholm"),
    }
    assert list(app.types) == list(schedules)
    environment = ["env", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"]
    dump, manage, sync, *_ = read_programs(printed)
    assert dump == ["pg_dump", "--file", "/backup/shop.dump", "shop"]
    assert manage[:2] == ["/bin/bash", "-c"] and manage[2].startswith("cd /srv/shop && ./manage")
    shell = '/usr/bin/python3 /srv/sync.py --day "$(date +%F)"'
    assert sync == [*environment, "/bin/bash", "-c", shell]


def test_what_is_no_job_stands_in_a_comment_with_the_reason() -> None:
    printed = convert_crontab(CRONTAB, "x.cron", "UTC").splitlines()
    assert "# the shop's jobs" in printed
    assert [line for line in printed if line.startswith("# MAILTO=ops@example.com: ")]
    reasons = {
        line.removeprefix("# NOT CONVERTED: "): printed[place + 1]
        for place, line in enumerate(printed)
        if line.startswith("# NOT CONVERTED: ")
    }
    said = {
        "@reboot /usr/bin/tunnel": "start of a machine",
        "CRON_TZ=Mars": "no time zone",
        "61 * * * * wrong": "minute '61'",
        "* * * * *": "no command",
    }
    assert list(reasons) == list(said)
    assert all(words in reasons[line] for line, words in said.items()), reasons


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="NO bash")
@pytest.mark.parametrize(
    ("line", "output"),
    [
        (r"printf '\%s\n' 'a b' c", "a b\nc\n"),
        (r"printf \%s\\\n a", "a\n"),
        (r"echo a; echo $((1 + 1)) 100\%", "a\n2 100%\n"),
        ("x='1 2' sh -c 'echo $x'", "1 2\n"),
        ("x='1 2' eval 'echo $x'", "1 2\n"),
        ("cat; echo end # why%first line%%it's%", "first line\n\nit's\n\nend\n"),
        ('echo "it\'s $WHO"', "it's me \\\n"),
        ("echo {a,b}", "a b\n"),
        ("cd / && pwd", "/\n"),
        ("echo \udcff", "\ufffd\n"),
    ],
)
def test_a_command_runs_as_cron_would_run_it(line: str, output: str) -> None:
    text = f'SHELL=/bin/bash\nWHO = "me \\"\nLC_ALL=C.UTF-8\n* * * * * {line}\n'
    [arguments] = read_programs(convert_crontab(text, "x", "UTC"))
    assert asyncio.run(run_program(arguments))["output"] == output


def test_a_crontab_of_the_system_has_a_user_in_each_line() -> None:
    text = "17 * * * * root cd / && run-parts --report /etc/cron.hourly\n"
    for file in ("/etc/crontab", "/etc/cron.d/x"):
        printed = convert_crontab(text, file, "UTC")
        assert "# cron ran it as root; a worker runs it as its own user." in printed
        [words] = read_programs(printed)
        assert words == ["/bin/sh", "-c", "cd / && run-parts --report /etc/cron.hourly"]
        assert list(declare(printed).types) == ["run-parts"]


def test_the_zone_is_that_of_the_machine(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    assert find_zone(link) == "UTC"
    for name, zone in (("Asia/Tokyo", "Asia/Tokyo"), ("Etc/UTC", "UTC"), ("Mars", "UTC")):
        link.symlink_to(f"/usr/share/zoneinfo/{name}")
        assert find_zone(link) == zone
        link.unlink()


def test_the_command_reads_a_file_or_its_input_and_takes_no_other_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old").write_bytes(b"# caf\xe9\n0 3 * * * backup\n")
    assert run(["crontab", "--import", "old"]) == 0
    assert list(declare(capsys.readouterr().out).types) == ["backup"]
    for options, says in (
        (["--import", "new"], "cannot read new: No such file"),
        (["--import", "old", "--systemd"], "give --systemd or --import, not both"),
        (["--import", "old", "--user", "x"], "--user does not apply here"),
    ):
        assert run(["crontab", *options]) == 2
        assert says in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"@daily backup\n")))
    assert run(["crontab", "--import", "-"]) == 0
    assert "commands of a crontab" in capsys.readouterr().out
