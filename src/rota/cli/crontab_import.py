"""`rota crontab --import`: turns crontab lines into declarations. Pure, but for `find_zone`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path, PurePosixPath

from rota.cli.output import read_template
from rota.errors import UsageError
from rota.model.cron import EVERY, parse

SETTING = re.compile(r"""(["']?)(?P<name>[A-Za-z_]\w*)\1\s*=\s*(?P<value>.*)""")
PERCENT = re.compile(r"(?<!\\)%")
SHELL_SIGNS = set("|&;<>()$`*?[]{}~#!\n")
"""A line with one of these signs means something else to a shell than to `shlex`."""
BUILT_IN = re.compile(r"[.:]|cd|eval|exec|export|for|if|set|source|ulimit|umask")
"""A line that begins with one of these words needs a shell, too."""
PREPARES = re.compile(BUILT_IN.pattern + r"|\[|echo|printf|sleep|test|true")
"""Commands before `&&`, `;` or `|` that are not the subject of the line."""
WRAPS = re.compile(
    r"(.*/)?(chronic|env|exec|flock|ionice|nice|nohup|sudo|time|timeout"
    r"|(ba|da|z|k)?sh|(python|perl|php|ruby|node)[\d.]*)"
)
"""Programs that run another program."""
NAME_MOST = 100
"""Most characters of a name, before the number that makes it unique."""
NO_PROGRAM = re.compile(r"-.*|\w+=.*|[\d.]+[smhd]?|.*[.]lock|.*/")
"""Words before the program: options, variables, durations, locks, directories."""


@dataclass
class CrontabReader:
    """The state above a line of a crontab."""

    zone: str
    """Time zone of the lines below."""
    has_user: bool
    """Whether each line has a user's name before its command, as in /etc/crontab."""
    shell: str = "/bin/sh"
    names: set[str] = field(default_factory=set)
    has_environment: bool = False
    """Whether a line above sets a variable for the lines below."""

    def convert(self, line: str) -> Iterator[str]:
        text = line.strip()
        shown = text.encode(errors="replace").decode()
        if not text or text.startswith("#"):
            yield shown
            return
        setting = SETTING.fullmatch(text)
        try:
            if setting is None:
                yield from self._declare(text)
            else:
                yield from self._set(setting["name"], setting["value"])
        except UsageError as error:
            yield f"# NOT CONVERTED: {shown}"
            yield f"# {error}"

    def _set(self, name: str, value: str) -> Iterator[str]:
        if value[:1] in ("'", '"') and value.endswith(value[0]):
            value = value[1:-1]
        if name == "CRON_TZ":
            parse("@daily", value)
            self.zone = value
        elif name == "SHELL":
            self.shell = value
        elif name == "MAILTO":
            instead = "docs/operate/alerts.md has what to do instead"
            yield f"# MAILTO={value}: Rota mails no output; {instead}."
        else:
            before = "*environment" if self.has_environment else '"env"'
            self.has_environment = True
            yield f"environment = [{before}, {_quote(f'{name}={value}')}]"

    def _declare(self, text: str) -> Iterator[str]:
        is_pace = text.split(maxsplit=1)[0].lower() == EVERY.strip()
        times = 2 if is_pace else 1 if text.startswith("@") else 5
        parts = text.split(maxsplit=times + self.has_user)
        if parts[0].lower() == "@reboot":
            raise UsageError("a job runs at a time, not at the start of a machine: use systemd")
        fields = parse(" ".join(parts[:times]), self.zone).text
        if len(parts) <= times + self.has_user:
            raise UsageError("there is no command")
        command, *given = [part.replace(r"\%", "%") for part in PERCENT.split(parts[-1])]
        name = self._name(command)
        if given:  # cron gives a program what follows the first % as its input, by lines
            typed = shlex.quote("\n".join(given))
            command = f"printf '%s\\n' {typed} | (\n{command}\n)"
        if self.has_user:
            yield f"# cron ran it as {parts[times]}; a worker runs it as its own user."
        yield "app.command("
        yield f"    {_quote(name)},"
        yield f"    {self._program(command)},"
        yield f"    schedule={_quote(fields)},"
        if self.zone != "UTC":
            yield f"    timezone={_quote(self.zone)},"
        yield '    timeout="24h",'
        yield ")"

    def _program(self, command: str) -> str:
        """Return the Python of a command: a text, or a list if it needs a shell or variables."""
        words = _split(command)
        first = words[0] if words else ""
        if not words or set(command) & SHELL_SIGNS or BUILT_IN.fullmatch(first) or "=" in first:
            words = [self.shell, "-c", command]
        elif not self.has_environment:
            return _quote(command)
        written = ["*environment"] if self.has_environment else []
        return f"[{', '.join([*written, *map(_quote, words)])}]"

    def _name(self, command: str) -> str:
        """Return the name of the command's program, with a number if a line above has this name."""
        name = re.sub(r"\W+", "-", _find_program(command).lower()).strip("-_")[:NAME_MOST]
        name = name or "command"
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        free = next(candidate for candidate in names if candidate not in self.names)
        self.names.add(free)
        return free


def convert_crontab(text: str, file: str, zone: str) -> str:
    """Return a crontab in Python. A crontab of /etc has the names of users."""
    has_user = file == "/etc/crontab" or file.startswith("/etc/cron.d/")
    reader = CrontabReader(zone, has_user)
    lines = [line for given in text.rstrip().split("\n") for line in reader.convert(given)]
    shown = file.replace("\\", "/").replace('"', "'")
    head = read_template("commands").replace("{{file}}", shown)
    return head + "\n" + "\n".join(lines) + "\n"


def find_zone(link: Path = Path("/etc/localtime")) -> str:
    """Return the name of this machine's time zone, in which its cron runs; UTC: it has no name."""
    name = str(link.resolve()).rpartition("zoneinfo/")[2]
    try:
        parse("@daily", name)
    except UsageError:
        return "UTC"
    return "UTC" if name in ("Etc/UTC", "Etc/Universal", "Universal", "Zulu") else name


def _find_program(command: str) -> str:
    """Return the name of the line's main program, without directory and suffix."""
    for part in re.split(r"&&|[|;\n]+", command):
        for word in _split(part):
            if PREPARES.fullmatch(word):
                break
            if not WRAPS.fullmatch(word) and not NO_PROGRAM.fullmatch(word):
                return PurePosixPath(word).stem
    return ""


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote: the shell will say so
        return []


def _quote(text: str) -> str:
    """Return a text as Python. Bytes that are no UTF-8 reach the program unchanged."""
    has_bytes = any("\ud800" <= sign <= "\udfff" for sign in text)
    if has_bytes or ('"' in text and "'" not in text):
        return repr(text)
    return json.dumps(text, ensure_ascii=False)
