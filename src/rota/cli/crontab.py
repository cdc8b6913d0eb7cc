"""`rota crontab`: what to install so that cron, systemd or Kubernetes wakes a drain again and again."""

from __future__ import annotations

import getpass
import json
import os
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
"""What goes evenly into an hour: cron's steps begin anew with each."""
SPARE_S = 10
"""By default a run claims nothing more so long before the next one begins."""
STOP_S = 45
"""What a drain that is told to end gets: its 30 s for running handlers, 10 s to record results, and some to spare."""
OPTIONS = {
    "crontab": {"--env-file", "--log", "--mailto", "--user"},
    "--systemd": {"--env-file", "--user"},
    "--k8s": {"--image"},
}
"""Which of them say something, by what is printed."""
DEADLINE_S = 3600
"""What Kubernetes gives a run beyond its `--every` before it stops it."""


@dataclass(frozen=True, slots=True)
class CronUnit:
    """What is woken, where, and how often."""

    app: str
    directory: Path
    every: int
    """Minutes."""
    for_: str
    env_file: Path | None
    """Where ROTA_DATABASE_URL is set."""
    log: Path | None
    mailto: str | None
    user: str | None
    image: str
    schema: str | None
    """ROTA_SCHEMA as it was set here."""

    @property
    def work(self) -> list[str]:
        """The command's arguments."""
        return ["work", "--app", self.app, "--drain", "--for", self.for_]

    @property
    def fields(self) -> str:
        """When, as cron writes it."""
        return {1: "*", 60: "0"}.get(self.every, f"*/{self.every}") + " * * * *"


def crontab(
    app: AppOption = None,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="A service and a timer for systemd.")
    ] = False,
    k8s: Annotated[bool, typer.Option("--k8s", help="A CronJob for Kubernetes.")] = False,
    every: Annotated[int, typer.Option(metavar="MINUTES", help="How often.")] = 1,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="Each run claims nothing more after so long. Defaults to 10 s less.",
        ),
    ] = None,
    env_file: Annotated[
        Path | None,
        typer.Option(
            help="The file that sets ROTA_DATABASE_URL. Defaults to rota.env in the project, where that variable is set here."
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="For cron: the file to append what is said to. Defaults to the syslog."),
    ] = None,
    mailto: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="For cron: who hears of what cron itself could not do."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Who it runs as: for a file in /etc/cron.d, and for systemd.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="For Kubernetes: the image with your project.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print what to install so that a drain runs again and again: a crontab, or with an option units for systemd or a manifest for Kubernetes.

    Nothing is installed, and no secret is printed.
    """
    if systemd and k8s:
        raise UsageError("--systemd and --k8s are two ways: give one of them")
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
    if env_file is None and os.environ.get("ROTA_DATABASE_URL"):
        env_file = directory / "rota.env"
    unit = CronUnit(
        reference,
        directory,
        every,
        for_ or f"{every * 60 - SPARE_S}s",
        _absolute(env_file),
        _absolute(log),
        mailto,
        user,
        image or "YOUR-IMAGE",
        check_schema(schema) if (schema := os.environ.get("ROTA_SCHEMA")) else None,
    )
    _refuse_what_a_line_cannot_hold(unit)
    files = systemd_units(unit) if systemd else kubernetes(unit) if k8s else crontab_file(unit)
    if as_json:
        print_json({"files": files})
    else:
        typer.echo("\n".join(files.values()), nl=False)


def crontab_file(unit: CronUnit) -> dict[str, str]:
    """The crontab, by its name."""
    command = shlex.join([sys.executable, "-m", "rota", *unit.work])
    # Only the drain's own words go to the log: what comes before it says on stderr, and cron mails.
    kept = f">> {shlex.quote(str(unit.log))} 2>&1" if unit.log else "2>&1 | logger -t rota"
    steps = [f"cd {shlex.quote(str(unit.directory))}"]
    if unit.env_file:
        steps.append(f"set -a && . {shlex.quote(str(unit.env_file))}")
    if unit.schema:
        command = f"ROTA_SCHEMA={unit.schema} {command}"
    line = " && ".join([*steps, f"{command} {kept}"])
    line = line.replace("%", r"\%")  # cron reads a bare % as the end of the line
    user = f" {unit.user} " if unit.user else " "
    where = (
        "/etc/cron.d/rota" if unit.user else "the crontab of the user it shall run as (crontab -e)"
    )
    text = f"""\
# Rota: does what is due, every {_minutes(unit.every)}. For {where}.
{_about_url(unit)}
# No flock: runs may overlap. Each takes jobs that the others have not, and one that takes long holds up nothing.
{f'MAILTO="{unit.mailto}"' if unit.mailto else "# MAILTO=you@example.com"}
{unit.fields} {user}{line}
"""
    return {"crontab": text}


def systemd_units(unit: CronUnit) -> dict[str, str]:
    """The service and its timer, by the names of their files."""
    environment = f"EnvironmentFile={_specifiers(str(unit.env_file))}\n" if unit.env_file else ""
    if unit.schema:
        environment += f"Environment=ROTA_SCHEMA={unit.schema}\n"
    command = " ".join(_systemd_word(word) for word in (sys.executable, "-m", "rota", *unit.work))
    service = f"""\
# /etc/systemd/system/rota.service
{_about_url(unit)}
# The journal keeps what it says: journalctl -u rota
[Unit]
Description=Rota: do what is due
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User={_specifiers(unit.user or getpass.getuser())}
WorkingDirectory={_specifiers(str(unit.directory))}
{environment}ExecStart={command}
# It finishes what runs, or hands it back, when it is stopped.
TimeoutStopSec={STOP_S}
"""
    when = {1: "*:*", 60: "*:00"}.get(unit.every, f"*:00/{unit.every}")
    timer = f"""\
# /etc/systemd/system/rota.timer
# systemctl daemon-reload && systemctl enable --now rota.timer
# A timer does not start a service that still runs: the next run then waits for the last job of this one.
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
    """The manifest, by its name."""
    command = json.dumps(["rota", *unit.work])
    schema = (
        f"\n                - name: ROTA_SCHEMA\n                  value: {json.dumps(unit.schema)}"
        if unit.schema
        else ""
    )
    manifest = f"""\
# Rota: does what is due, every {_minutes(unit.every)}. kubectl apply -f rota-cronjob.yaml
# The database's URL comes from a secret: kubectl create secret generic rota --from-env-file=FILE, where FILE holds
# ROTA_DATABASE_URL=… without quotes
apiVersion: batch/v1
kind: CronJob
metadata:
  name: rota
spec:
  schedule: {json.dumps(unit.fields)}
  concurrencyPolicy: Allow # runs may overlap: one that takes long holds up nothing
  startingDeadlineSeconds: 60
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 0 # the next run is the retry
      activeDeadlineSeconds: {unit.every * 60 + DEADLINE_S} # longer than --for and your longest job; what runs then is handed back
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
            f"# The database's URL is no business of this file: {unit.env_file} holds the line ROTA_DATABASE_URL='postgresql://…', and is\n"
            "# readable to nobody but that user (chmod 600)."
        )
    return (
        "# It sets no ROTA_DATABASE_URL: none was set where this was printed, so it works with the URL that the App names, else with the\n"
        "# private PostgreSQL of this directory. `--env-file FILE` names a file that sets it."
    )


def _check_pace(every: int, for_: str | None) -> None:
    if every not in EVERY_MINUTES:
        raise UsageError(
            f"--every must go evenly into an hour: {', '.join(map(str, EVERY_MINUTES))}, not {every}"
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
            raise UsageError(f"{option} says nothing here: it is for {instead}")


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
                f"{str(text)!r} holds signs that cannot stand in one line of such a file"
            )
    for option, word in (("--user", unit.user), ("--mailto", unit.mailto), ("--image", unit.image)):
        if word is not None and (not word or set(word) & set(" '\"\\%")):
            raise UsageError(f"{option} takes one word without quotes, not {word!r}")


def _absolute(path: Path | None) -> Path | None:
    """Without `..` too: systemd ignores an EnvironmentFile that has one."""
    return path and Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would go where a link points, and a deploy moves it


def _minutes(count: int) -> str:
    return "minute" if count == 1 else f"{count} minutes"


def _specifiers(text: str) -> str:
    """As a unit file takes it: % begins one of its specifiers."""
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    """A word of ExecStart."""
    word = _specifiers(word).replace("$", "$$")
    if (
        word.replace("/", "")
        .replace("-", "")
        .replace(".", "")
        .replace(":", "")
        .replace("_", "")
        .isalnum()
    ):
        return word
    return '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'
