"""`rota crontab`: prints files for cron, systemd, Kubernetes or Docker: drains, or a worker."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

import typer

from rota.cli.crontab_import import convert_crontab, find_zone
from rota.cli.flags import flag, list_flags, option
from rota.cli.output import print_json, read_template
from rota.cli.target import AppOption, JsonOption, need_app, need_reference
from rota.errors import UsageError
from rota.model.units import seconds
from rota.store.statements import check_schema

SPARE_S = 10
"""Seconds before the next run when a run stops claiming. The default of --for."""
STOP_S = 50
"""Seconds to stop: the grace period plus 20, as docs/operate/deploy.md says."""
HEALTH_PORT = 8080
APPLIES_TO = {
    "--worker": ("--systemd", "--k8s"),
    "--env-file": ("", "--systemd"),
    "--log": ("",),
    "--mailto": ("",),
    "--user": ("", "--systemd"),
    "--image": ("--k8s",),
}
"""Options that apply to some files only, with the options that print these files."""
PLAIN_WORD = re.compile(r"[\w/.:-]+")
"""A word of ExecStart that needs no quotes."""
DEADLINE_S = 3600
"""Kubernetes stops a run this many seconds after the next run was due."""
FIELD = re.compile(r"(?m)^( *)\{\{(\w+)\}\}\n|\{\{(\w+)\}\}")
"""A field of a template, with its margin if the field has its own line."""


@dataclass(frozen=True, slots=True)
class CronOptions:
    """How often a drain starts, or that a permanent worker runs, and under which user."""

    worker: bool = flag(
        "--worker",
        "With --systemd: a service that keeps running. With --k8s: a Deployment, and a "
        "Job that migrates.",
    )
    every: int = option(
        "--every MINUTES", "Interval between runs; must divide an hour evenly.", default=1
    )
    for_: str | None = option(
        "--for DURATION", "A run stops claiming jobs after this time. Default: --every less 10 s."
    )
    env_file: Path | None = option(
        "--env-file",
        "File that sets ROTA_DATABASE_URL. Default: rota.env in the project if that "
        "variable is set now, otherwise none.",
    )
    log: Path | None = option("--log", "cron: file to which output is appended. Default: syslog.")
    mailto: str | None = option(
        "--mailto ADDRESS",
        "cron: address to which it mails that a run failed. Default: cron's own setting.",
    )
    user: str | None = option(
        "--user",
        "User to run as. cron: print a file for /etc/cron.d. systemd: the current user by default.",
    )
    image: str | None = option(
        "--image", "Kubernetes: image that contains your project. Default: YOUR-IMAGE."
    )


@dataclass(frozen=True, slots=True)
class CronUnit:
    """What to start, where and how often."""

    app: str
    directory: Path
    every: int
    """Minutes between drains; 0: a permanent worker."""
    env_file: Path | None
    """The file that sets ROTA_DATABASE_URL."""
    variables: dict[str, str]
    """Variables of this process that a drain needs too."""
    asked: CronOptions

    @property
    def work(self) -> list[str]:
        drain = ["--drain", "--for", self.asked.for_ or f"{self.every * 60 - SPARE_S}s"]
        return ["work", "--app", self.app, *(drain if self.every else [])]

    @property
    def command(self) -> list[str]:
        """The same command with this Python: for this machine."""
        return [sys.executable, "-m", "rota", *self.work]

    @property
    def times(self) -> str:
        return {1: "*", 60: "0"}.get(self.every, f"*/{self.every}") + " * * * *"


def crontab(
    app: AppOption = None,
    systemd: bool = flag("--systemd", "Print a systemd service and its timer."),
    k8s: bool = flag("--k8s", "Print a Kubernetes CronJob."),
    compose: bool = flag("--compose", "Print a Dockerfile and a compose file, with a worker."),
    *,
    asked: CronOptions,
    import_: str | None = option(
        "--import FILE",
        "Print Python that declares the commands of this crontab. -: standard input.",
    ),
    out: Path | None = option(
        "--out DIRECTORY", "Write the files there instead of printing them, and print their names."
    ),
    as_json: JsonOption = False,
) -> None:
    """Print a crontab that runs `rota work --drain` periodically.

    With --systemd or --k8s: systemd units or a Kubernetes manifest. With --import: Python that
    declares the commands of a crontab. Installs nothing, and prints no secrets but those of FILE.
    """
    ways = {"--systemd": systemd, "--k8s": k8s, "--compose": compose, "--import": bool(import_)}
    chosen = [way for way, is_given in ways.items() if is_given]
    if len(chosen) > 1:
        raise UsageError(f"give {' or '.join(chosen)}, not both")
    way = "".join(chosen)
    _refuse_unfit(way, asked)
    if import_:
        _print({"commands.py": _convert(import_)}, out, as_json=as_json)
        return
    need_app(app)
    directory, reference = need_reference(app)
    has_url = bool(os.environ.get("ROTA_DATABASE_URL"))
    unit = CronUnit(
        app=reference,
        directory=directory,
        every=0 if asked.worker or compose else asked.every,
        # The printed files must not contain the URL.
        env_file=_absolute(asked.env_file or (directory / "rota.env" if has_url else None)),
        variables=_find_variables(reference),
        asked=asked,
    )
    _refuse_what_a_line_cannot_hold(unit)
    _print(PRINTERS[way](unit), out, as_json=as_json)


def _print(files: dict[str, str], out: Path | None, *, as_json: bool) -> None:
    if out is not None:
        _write(files, out)
    if as_json:
        print_json({"files": files})
    elif out is not None:
        typer.echo("\n".join(str(out / name) for name in files))
    else:
        typer.echo("\n".join(files.values()), nl=False)


def _write(files: dict[str, str], out: Path) -> None:
    """Write new files. An existing file may have been edited, and is not replaced."""
    paths = {out / name: text for name, text in files.items()}
    if found := [str(path) for path in paths if path.exists()]:
        raise UsageError(f"--out: {', '.join(found)} exists already; remove it, or name another")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out: cannot write into {out}: {error.strerror}") from None


def _convert(file: str) -> str:
    try:
        read = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"--import: cannot read {file}: {error.strerror}") from None
    name = "a crontab" if file == "-" else file
    return convert_crontab(read.decode(errors="surrogateescape"), name, find_zone())


def crontab_file(unit: CronUnit) -> dict[str, str]:
    """Make the crontab; return its text by name."""
    steps = [f"cd {shlex.quote(str(unit.directory))}"]
    if unit.env_file:
        steps.append(f"set -a && . {shlex.quote(str(unit.env_file))}")
    variables = [f"{name}={value}" for name, value in unit.variables.items()]
    command = " ".join([*variables, shlex.join(unit.command)])
    asked = unit.asked
    # Only the drain's output goes to the log. cron mails all other output: of the steps before it,
    # and the status of a failed drain.
    says = 'echo "rota: exit status $?"'
    if asked.log:
        log = shlex.quote(str(_absolute(asked.log)))
        steps.append(f"{command} --log-format plain >> {log} 2>&1 || {{ {says}; false; }}")
    else:
        steps.append(f"{{ {{ {command} 2>&1 || {says} >&3; }} | logger -t rota; }} 3>&1")
    text = fill(
        "crontab",
        minutes=_minutes(unit.every),
        where="/etc/cron.d/rota"
        if asked.user
        else "the crontab of the user to run as (crontab -e)",
        about_url=_about_url(unit),
        mailto=f'MAILTO="{asked.mailto}"' if asked.mailto else "# MAILTO=you@example.com",
        times=unit.times,
        user=f" {asked.user} " if asked.user else " ",
        line=" && ".join(steps).replace("%", r"\%"),  # cron reads a bare % as the end of the line
    )
    return {"crontab": text}


def systemd_units(unit: CronUnit) -> dict[str, str]:
    env_file = [f"EnvironmentFile={_specifiers(str(unit.env_file))}"] if unit.env_file else []
    variables = [f"Environment={name}={value}" for name, value in unit.variables.items()]
    service = fill(
        "drain.service" if unit.every else "worker.service",
        about_url=_about_url(unit),
        user=_specifiers(unit.asked.user or getpass.getuser()),
        directory=_specifiers(str(unit.directory)),
        environment=[*env_file, *variables],
        command=" ".join(map(_systemd_word, unit.command)),
        stop_s=STOP_S,
    )
    if not unit.every:
        return {"rota.service": service}
    when = {1: "*:*", 60: "*:00"}.get(unit.every, f"*:00/{unit.every}")
    timer = fill("drain.timer", minutes=_minutes(unit.every), when=when)
    return {"rota.service": service, "rota.timer": timer}


def kubernetes(unit: CronUnit) -> dict[str, str]:
    """Make the CronJob of drains; or the Deployment of a worker, and the Job that migrates before
    its rollout. Return the texts by file name."""
    if unit.every:
        drain = fill(
            "cronjob.yaml",
            minutes=_minutes(unit.every),
            times=unit.times,
            deadline_s=unit.every * 60 + DEADLINE_S,
            stop_s=STOP_S,
            container=_container(unit, unit.work),
        )
        return {"rota-cronjob.yaml": drain}
    migrate = fill("migrate.yaml", container=_container(unit, ["migrate", "--app", unit.app]))
    work = _container(unit, [*unit.work, "--health-port", str(HEALTH_PORT)])
    worker = fill("worker.yaml", container=work, stop_s=STOP_S, port=HEALTH_PORT)
    return {"rota-migrate.yaml": migrate, "rota-worker.yaml": worker}


def _container(unit: CronUnit, arguments: list[str]) -> list[str]:
    variables = [
        line
        for name, value in unit.variables.items()
        for line in (f"- name: {name}", f"  value: {json.dumps(value)}")
    ]
    command = json.dumps(["rota", *arguments])
    image = json.dumps(unit.asked.image or "YOUR-IMAGE")
    return fill("container.yaml", image=image, command=command, variables=variables).splitlines()


def compose_files(unit: CronUnit) -> dict[str, str]:
    """Make a project's Dockerfile and a compose file with a worker. Return texts by file name."""
    dockerfile = fill(
        "Dockerfile",
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        project="-r requirements.txt" if (unit.directory / "requirements.txt").exists() else ".",
        command=json.dumps(["rota", *unit.work, "--health-port", str(HEALTH_PORT)]),
    )
    composed = fill(
        "compose.yaml",
        migrate=json.dumps(["rota", "migrate", "--app", unit.app]),
        variables=[f"{name}: {json.dumps(value)}" for name, value in unit.variables.items()],
        stop_s=STOP_S,
        port=HEALTH_PORT,
    )
    ignored = fill("dockerignore")
    return {"Dockerfile": dockerfile, "compose.yaml": composed, ".dockerignore": ignored}


PRINTERS = {
    "": crontab_file,
    "--systemd": systemd_units,
    "--k8s": kubernetes,
    "--compose": compose_files,
}


def fill(template: str, **fields: object) -> str:
    """Fill in a template. A field with its own line may be a list: one line for each item."""

    def put(found: re.Match[str]) -> str:
        margin, lines, word = found.groups()
        given = fields[lines or word]
        if word:
            return str(given)
        return "".join(
            f"{margin}{line}\n" for line in (given if isinstance(given, list) else [given])
        )

    return FIELD.sub(put, read_template(template))


def _about_url(unit: CronUnit) -> list[str]:
    about = "about-env-file" if unit.env_file else "about-no-url"
    return fill(about, env_file=unit.env_file).splitlines()


def _refuse_unfit(way: str, asked: CronOptions) -> None:
    """Raise UsageError for options that do not fit the printed files, or each other."""
    for name in list_flags(asked):
        if way not in APPLIES_TO.get(name, (way,)):
            instead = " or ".join(
                f"`{f'rota crontab {other}'.strip()}`" for other in APPLIES_TO[name]
            )
            raise UsageError(f"{name} does not apply here: it is for {instead}")
    if (asked.worker or way == "--compose") and (asked.every, asked.for_) != (1, None):
        raise UsageError("--every and --for are for drains, not for a worker that keeps running")
    if not 1 <= asked.every <= 60 or 60 % asked.every:
        fits = ", ".join(str(number) for number in range(1, 61) if 60 % number == 0)
        raise UsageError(f"--every must divide an hour evenly: {fits}; not {asked.every}")
    if asked.for_ is not None:
        seconds(asked.for_, name="--for")


def _refuse_what_a_line_cannot_hold(unit: CronUnit) -> None:
    asked = unit.asked
    texts = (unit.app, unit.directory, unit.env_file, *astuple(asked), sys.executable)
    for text in map(str, texts):
        if not text.isprintable():
            raise UsageError(f"{text!r} contains characters that a line of such a file cannot hold")
    for name in ("user", "mailto", "image"):
        word = getattr(asked, name)
        if word is not None and (not word or set(word) & set(" '\"\\%")):
            raise UsageError(f"--{name} takes one word without quotes, not {word!r}")


def _find_variables(reference: str) -> dict[str, str]:
    """Return the variables that a drain needs. Raises UsageError: a wrong reference."""
    found = {}
    if schema := os.environ.get("ROTA_SCHEMA"):
        found["ROTA_SCHEMA"] = check_schema(schema)
    settings = os.environ.get("DJANGO_SETTINGS_MODULE")
    if settings and reference.startswith("rota.integrations.django."):
        if not all(part.isidentifier() for part in settings.split(".")):
            raise UsageError(f"DJANGO_SETTINGS_MODULE names no module: {settings!r}")
        found["DJANGO_SETTINGS_MODULE"] = settings
        if alias := os.environ.get("ROTA_DJANGO_DATABASE"):  # of `manage.py rota --database`
            found["ROTA_DJANGO_DATABASE"] = alias
    return found


def _absolute(path: Path | None) -> Path | None:
    """Make a path absolute and remove `..`: systemd ignores an EnvironmentFile with `..`."""
    # resolve() would follow a link, and a deploy changes the target of the link.
    return path and Path(os.path.abspath(path))  # noqa: PTH100


def _minutes(count: int) -> str:
    return "minute" if count == 1 else f"{count} minutes"


def _specifiers(text: str) -> str:
    """Escape %, which begins a specifier in a unit file."""
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    word = _specifiers(word).replace("$", "$$")
    if PLAIN_WORD.fullmatch(word):
        return word
    return '"' + word.replace("\\", r"\\").replace('"', r"\"") + '"'
