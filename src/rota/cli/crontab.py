"""`rota crontab`: prints the files with which cron, systemd or Kubernetes starts drains."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.output import print_json
from rota.cli.target import AppOption, JsonOption, need_app, need_reference
from rota.errors import UsageError
from rota.model.units import seconds
from rota.store.statements import check_schema

EVERY_MINUTES = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
"""Divisors of an hour: the steps of cron begin again with each hour."""
SPARE_S = 10
"""A run stops claiming this many seconds before the next run begins. The default of --for."""
STOP_S = 45
"""Seconds to stop a drain: 30 for running handlers, 10 to record results, 5 in reserve."""
OPTIONS = {
    "crontab": {"--env-file", "--log", "--mailto", "--user"},
    "--systemd": {"--env-file", "--user"},
    "--k8s": {"--image"},
}
"""Options that apply, by what is printed."""
PLAIN_WORD = re.compile(r"[\w/.:-]+")
"""A word of ExecStart that needs no quotes."""
DEADLINE_S = 3600
"""Kubernetes stops a run this many seconds after the next one was due."""


@dataclass(frozen=True, slots=True)
class CronUnit:
    """The drain to start: where, how often, and as which user."""

    app: str
    directory: Path
    every: int
    """Minutes."""
    for_: str
    env_file: Path | None
    """The file that sets ROTA_DATABASE_URL."""
    log: Path | None
    mailto: str | None
    user: str | None
    image: str
    schema: str | None
    """ROTA_SCHEMA of the process that prints the files."""

    @property
    def work(self) -> list[str]:
        """The command's arguments."""
        return ["work", "--app", self.app, "--drain", "--for", self.for_]

    @property
    def fields(self) -> str:
        """The time fields of the crontab line."""
        return {1: "*", 60: "0"}.get(self.every, f"*/{self.every}") + " * * * *"


def crontab(
    app: AppOption = None,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a systemd service and its timer.")
    ] = False,
    k8s: Annotated[bool, typer.Option("--k8s", help="Print a Kubernetes CronJob.")] = False,
    every: Annotated[
        int,
        typer.Option(metavar="MINUTES", help="Interval between runs; must divide an hour evenly."),
    ] = 1,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="A run stops claiming jobs after this time. Default: --every less 10 s.",
        ),
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option(
            help="File that sets ROTA_DATABASE_URL. Default: rota.env in the project if that "
            "variable is set now, otherwise none."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="cron: file to which output is appended. Default: syslog."),
    ] = None,
    mailto: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="cron: address to which it mails that a run failed. Default: cron's own setting.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            help="User to run as. cron: print a file for /etc/cron.d. systemd: the current user by "
            "default."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Kubernetes: image that contains your project. Default: YOUR-IMAGE."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print a crontab that runs `rota work --drain` periodically.

    With --systemd or --k8s: systemd units or a Kubernetes manifest. Installs nothing, and prints no
    secrets.
    """
    if systemd and k8s:
        raise UsageError("give --systemd or --k8s, not both")
    _refuse_options_of_another_way(
        "--systemd" if systemd else "--k8s" if k8s else "crontab",
        {
            "--env-file": env_file,
            "--log": log,
            "--mailto": mailto,
            "--user": user,
            "--image": image,
        },
    )
    _check_pace(every, for_)
    need_app(app)
    directory, reference = need_reference(app)
    schema = os.environ.get("ROTA_SCHEMA")
    unit = CronUnit(
        app=reference,
        directory=directory,
        every=every,
        for_=for_ or f"{every * 60 - SPARE_S}s",
        env_file=_absolute(env_file or _default_env_file(directory)),
        log=_absolute(log),
        mailto=mailto,
        user=user,
        image=image or "YOUR-IMAGE",
        schema=check_schema(schema) if schema else None,
    )
    _refuse_what_a_line_cannot_hold(unit)
    files = systemd_units(unit) if systemd else kubernetes(unit) if k8s else crontab_file(unit)
    if as_json:
        print_json({"files": files})
    else:
        typer.echo("\n".join(files.values()), nl=False)


def crontab_file(unit: CronUnit) -> dict[str, str]:
    """Make the crontab. Returns its text by name."""
    command = shlex.join([sys.executable, "-m", "rota", *unit.work])
    steps = [f"cd {shlex.quote(str(unit.directory))}"]
    if unit.env_file:
        steps.append(f"set -a && . {shlex.quote(str(unit.env_file))}")
    if unit.schema:
        command = f"ROTA_SCHEMA={unit.schema} {command}"
    # Only the drain's output goes to the log. cron mails the rest: what the steps before it print,
    # and the status of a drain that failed.
    says = 'echo "rota: exit status $?"'
    if unit.log:
        log = shlex.quote(str(unit.log))
        steps.append(f"{command} --log-format plain >> {log} 2>&1 || {{ {says}; false; }}")
    else:
        steps.append(f"{{ {{ {command} 2>&1 || {says} >&3; }} | logger -t rota; }} 3>&1")
    line = " && ".join(steps)
    line = line.replace("%", r"\%")  # cron reads a bare % as the end of the line
    user = f" {unit.user} " if unit.user else " "
    where = "/etc/cron.d/rota" if unit.user else "the crontab of the user to run as (crontab -e)"
    text = f"""\
# Rota: runs all due jobs, every {_minutes(unit.every)}. For {where}.
{_about_url(unit)}
# No flock needed: runs may overlap. Each job is claimed by one run, and a long run delays no other.
{f'MAILTO="{unit.mailto}"' if unit.mailto else "# MAILTO=you@example.com"}
{unit.fields} {user}{line}
"""
    return {"crontab": text}


def systemd_units(unit: CronUnit) -> dict[str, str]:
    """Make the service and its timer. Returns their texts by file name."""
    environment = f"EnvironmentFile={_specifiers(str(unit.env_file))}\n" if unit.env_file else ""
    if unit.schema:
        environment += f"Environment=ROTA_SCHEMA={unit.schema}\n"
    command = " ".join(_systemd_word(word) for word in (sys.executable, "-m", "rota", *unit.work))
    service = f"""\
# /etc/systemd/system/rota.service
{_about_url(unit)}
# To read its output: journalctl -u rota
[Unit]
Description=Rota: run due jobs
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={_specifiers(unit.user or getpass.getuser())}
WorkingDirectory={_specifiers(str(unit.directory))}
{environment}ExecStart={command}
# When stopped it finishes running jobs, or returns them to the queue.
TimeoutStopSec={STOP_S}
"""
    when = {1: "*:*", 60: "*:00"}.get(unit.every, f"*:00/{unit.every}")
    timer = f"""\
# /etc/systemd/system/rota.timer
# systemctl daemon-reload && systemctl enable --now rota.timer
# A timer does not start a service that still runs: the next run waits for the last job of this one.
[Unit]
Description=Rota: every {_minutes(unit.every)}

[Timer]
OnCalendar={when}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
    return {"rota.service": service, "rota.timer": timer}


def kubernetes(unit: CronUnit) -> dict[str, str]:
    """Make the manifest. Returns its text by file name."""
    command = json.dumps(["rota", *unit.work])
    schema = (
        f"\n                - name: ROTA_SCHEMA\n                  value: {json.dumps(unit.schema)}"
        if unit.schema
        else ""
    )
    manifest = f"""\
# Rota: runs all due jobs, every {_minutes(unit.every)}. kubectl apply -f rota-cronjob.yaml
# The database URL comes from a secret: kubectl create secret generic rota --from-env-file=FILE
# FILE contains the line ROTA_DATABASE_URL=… without quotes.
apiVersion: batch/v1
kind: CronJob
metadata:
  name: rota
spec:
  schedule: {json.dumps(unit.fields)}
  concurrencyPolicy: Allow # runs may overlap: a long run delays no other
  startingDeadlineSeconds: 60
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0 # the next run is the retry
      # Longer than --for and your longest job. At the deadline, jobs return to the queue.
      activeDeadlineSeconds: {unit.every * 60 + DEADLINE_S}
      template:
        spec:
          restartPolicy: Never
          terminationGracePeriodSeconds: {STOP_S}
          containers:
            - name: rota
              image: {json.dumps(unit.image)}
              command: {command}
              env:
                - name: ROTA_ENV
                  value: production{schema}
                - name: ROTA_DATABASE_URL
                  valueFrom:
                    secretKeyRef:
                      name: rota
                      key: ROTA_DATABASE_URL
"""
    return {"rota-cronjob.yaml": manifest}


def _about_url(unit: CronUnit) -> str:
    if unit.env_file:
        return (
            f"# The database URL is not in this file. {unit.env_file} contains the line\n"
            "# ROTA_DATABASE_URL='postgresql://…' and is readable only by that user (chmod 600)."
        )
    return (
        "# Sets no ROTA_DATABASE_URL, because none was set when this was printed. Uses the URL of\n"
        "# the App, otherwise the private PostgreSQL of this directory; --env-file FILE sets one."
    )


def _default_env_file(directory: Path) -> Path | None:
    """Return rota.env in the project if a URL is set now: what is printed must not contain it."""
    return directory / "rota.env" if os.environ.get("ROTA_DATABASE_URL") else None


def _check_pace(every: int, for_: str | None) -> None:
    if every not in EVERY_MINUTES:
        raise UsageError(
            f"--every must divide an hour evenly: {', '.join(map(str, EVERY_MINUTES))}; not {every}"
        )
    if for_ is not None:
        seconds(for_, name="--for")


def _refuse_options_of_another_way(way: str, given: dict[str, object]) -> None:
    for option, value in given.items():
        if value is not None and option not in OPTIONS[way]:
            instead = " or ".join(
                f"`rota crontab{'' if other == 'crontab' else ' ' + other}`"
                for other, own in OPTIONS.items()
                if option in own
            )
            raise UsageError(f"{option} does not apply here: it is for {instead}")


def _refuse_what_a_line_cannot_hold(unit: CronUnit) -> None:
    for text in (
        unit.directory,
        unit.env_file,
        unit.log,
        unit.mailto,
        unit.user,
        unit.image,
        sys.executable,
        unit.app,
    ):
        if text is not None and not str(text).isprintable():
            raise UsageError(
                f"{str(text)!r} contains characters that a line of such a file cannot hold"
            )
    for option, word in (("--user", unit.user), ("--mailto", unit.mailto), ("--image", unit.image)):
        if word is not None and (not word or set(word) & set(" '\"\\%")):
            raise UsageError(f"{option} takes one word without quotes, not {word!r}")


def _absolute(path: Path | None) -> Path | None:
    """Make a path absolute and remove `..`: systemd ignores an EnvironmentFile that has one."""
    # resolve() would follow a link, and a deploy changes where the link points.
    return path and Path(os.path.abspath(path))  # noqa: PTH100


def _minutes(count: int) -> str:
    return "minute" if count == 1 else f"{count} minutes"


def _specifiers(text: str) -> str:
    """Escape %, which begins a specifier in a unit file."""
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    """Quote a word of ExecStart."""
    word = _specifiers(word).replace("$", "$$")
    if PLAIN_WORD.fullmatch(word):
        return word
    return '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'
