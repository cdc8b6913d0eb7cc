"""What the README says to type works as it stands: on a database of one's own, and on the private
one."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.docs.shop import STAYS, Shop
from tests.support.rules import rule
from tests.support.server import PostgresServer

README = (Path(__file__).parents[2] / "README.md").read_text()
SERVED = "/srv/shop"
SIGN_UP = """
import os, psycopg, sign_up
with psycopg.connect(os.environ["ROTA_DATABASE_URL"]) as connection:
    assert sign_up.sign_up(connection, "Ada") > 0
"""
ROLL_BACK = """
import os, psycopg, sign_up
with psycopg.connect(os.environ["ROTA_DATABASE_URL"]) as connection:
    with connection.transaction(force_rollback=True):
        assert sign_up.sign_up(connection, "Grace") > 0
"""

pytestmark = pytest.mark.system


def blocks(language: str) -> list[str]:
    """The README's fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def the_block(language: str) -> str:
    [block] = blocks(language)
    return block


def commands() -> list[str]:
    """The lines of its shell blocks, in order."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if not line.startswith("pip ")]


def crontab_commands(directory: Path) -> list[str]:
    """What cron would hand to sh: the line after its five fields, with \\% for %."""
    lines = the_block("crontab").replace(SERVED, str(directory)).replace("\\%", "%").splitlines()
    return [line.split(maxsplit=5)[5] for line in lines]


@pytest.mark.slow
@rule("M3", "M20", "M80")
@pytest.mark.parametrize(
    "is_private",
    [
        pytest.param(False, id="on a database of one's own"),
        pytest.param(True, id="on the private one"),
    ],
)
def test_every_shell_command_of_the_readme_does_what_it_says(
    is_private: bool, empty_database: str, server: PostgresServer, place: Path
) -> None:
    shop = Shop(place, None if is_private else empty_database)
    shop.environment["ROTA_TEST_DATABASE_URL"] = server.url()
    said = {
        line: shop.work_until_stopped() if line == STAYS else shop.type(line) for line in commands()
    }

    [enqueued] = [said[line] for line in said if line.startswith("rota enqueue")]
    assert enqueued == "job 1 queued\n"
    assert said["rota work --app shop:app --drain"].startswith(
        "claimed 1, succeeded 1, failed 0, dead 0"
    )
    assert "succeeded" in said["rota job 1"]
    assert "mailed user 42" in said["rota job 1"]
    assert "1 passed" in said["ROTA_APP=shop:app pytest"]
    assert "daily_report, send_welcome_email" in said["rota migrate --app shop:app"]


@rule("M3", "M80", "M82")
def test_the_crontab_line_of_the_readme_does_what_its_schedules_have_enqueued(
    empty_database: str, place: Path
) -> None:
    shop = Shop(place, empty_database)
    shop.type("rota migrate --app shop:app")
    shop.type("rota schedules trigger daily-report")
    [drain] = crontab_commands(place)
    shop.type(drain)

    with psycopg.connect(empty_database) as connection:
        # Where it is seven in Stockholm just now, there is a second one.
        rows = connection.execute(
            "select job_type, schedule, status, result from rota.jobs where scheduled_for is null"
        ).fetchall()
    [(job_type, schedule, status, result)] = rows
    assert (job_type, schedule, status) == ("daily_report", "daily-report", "succeeded")
    assert result == "reports/today.csv"


@rule("M20")
def test_the_sign_up_of_the_readme_rolls_back_with_its_job(database: str, place: Path) -> None:
    shop = Shop(place, database)
    (place / "sign_up_ada.py").write_text(SIGN_UP)
    shop.type("python sign_up_ada.py")
    (place / "roll_back.py").write_text(ROLL_BACK)
    shop.type("python roll_back.py")

    with psycopg.connect(database) as connection:
        assert connection.execute("select name from app_user").fetchall() == [("Ada",)]
        assert connection.execute("select payload from rota.job").fetchall() == [({"user_id": 1},)]


def test_no_block_of_the_readme_goes_untried() -> None:
    languages = set(re.findall(r"^```(\w+)$", README, re.MULTILINE))
    assert languages == {"python", "sh", "crontab"}
    assert README.count("```") == 2 * sum(len(blocks(language)) for language in languages)


# tests/test_demo.py has the demo.
LINES = [line.strip() for line in re.findall(r"`(rota (?!demo)[^`]+)`", README)]


@pytest.mark.parametrize("line", LINES)
def test_the_commands_in_the_readmes_text_exist(line: str, database: str, place: Path) -> None:
    status = 1 if line == "rota doctor" else 0  # autovacuum is off on the server of the tests
    Shop(place, database).type(f"{line}; test $? -eq {status}")
