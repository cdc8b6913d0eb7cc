"""The form that enqueues a job by hand: made from the parameters of its type, which checks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rota.client.session import open_session
from rota.dashboard.look import Act, Look, refuse_without
from rota.dashboard.request import Response
from rota.declare.job_type import JobType, NewJob
from rota.declare.payload import Codec
from rota.declare.secret import inner_of
from rota.errors import PayloadError, UnknownJobType, UsageError
from rota.store import ops

if TYPE_CHECKING:
    from rota.app import App

_WORDS = (
    msgspec.inspect.StrType | msgspec.inspect.DateTimeType | msgspec.inspect.DateType
    | msgspec.inspect.TimeType | msgspec.inspect.TimeDeltaType | msgspec.inspect.UUIDType
    | msgspec.inspect.DecimalType | msgspec.inspect.BytesType
)  # fmt: skip
"""Types whose JSON is a string: what is typed is the value."""


class Input(msgspec.Struct, frozen=True):
    """A field of the form."""

    name: str
    is_word: bool
    """Whether what is typed is a text; otherwise it is JSON."""
    choices: list[str]
    """What it may be; empty: anything."""
    is_required: bool
    default: str
    """The handler's default, for who leaves the field empty."""
    is_secret: bool
    """Whether what was typed is not shown again."""


def list_inputs(codec: Codec) -> Iterator[Input]:
    """Return the fields of a form for the arguments, in the order of the parameters."""
    for name, hint in codec.hints.items():
        info = msgspec.inspect.type_info(inner_of(hint) or hint)
        kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
        given = [kind for kind in kinds if not isinstance(kind, msgspec.inspect.NoneType)]
        is_required = name in codec.required
        default = "" if is_required else repr(codec.defaults.get(name, ""))
        words = bool(given) and all(isinstance(kind, _WORDS) for kind in given)
        choices = _list_choices(given[0]) if len(given) == 1 else []
        yield Input(name, words, choices, is_required, default, name in codec.secret)


def _list_choices(kind: msgspec.inspect.Type) -> list[str]:
    """Return the JSON of each value that a type allows; empty: too many."""
    if isinstance(kind, msgspec.inspect.BoolType):
        return ["true", "false"]
    if isinstance(kind, msgspec.inspect.LiteralType):
        return [msgspec.json.encode(value).decode() for value in kind.values]
    if isinstance(kind, msgspec.inspect.EnumType):
        return [msgspec.json.encode(value).decode() for value in kind.cls]
    return []


def read_arguments(inputs: list[Input], typed: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments that were typed; an empty field that has a default is left out. Raises
    UsageError for what is no JSON."""
    arguments: dict[str, Any] = {}
    for field in inputs:
        text = typed.get(field.name, "")
        if text == "" and not field.is_required:
            continue
        try:
            arguments[field.name] = text if field.is_word else msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            raise UsageError(
                f'{field.name} must be JSON, such as 42, true, "text" or [1, 2]'
            ) from None
    return arguments


def show_types(look: Look) -> Response:
    """The types of the App: each leads to its form."""
    refuse_without(look.request, "enqueue")
    names = sorted(look.app.types)
    return look.show("enqueue.html", "Enqueue a job", {"types": names}, name=None, is_live=False)


def show_form(look: Look, name: str, refused: str = "") -> Response:
    """The form of a type; after a refusal with what was typed, and why it was refused."""
    refuse_without(look.request, "enqueue")
    job_type = _find_type(look.app, name)
    inputs = list(list_inputs(job_type._declaration.codec))
    form = look.request.form
    return look.show(
        "enqueue.html", f"Enqueue {name}", {"type": name, "inputs": inputs}, name=name,
        refused=refused, typed={field: values[0] for field, values in form.items()}, is_live=False,
    )  # fmt: skip


def enqueue_job(act: Act, name: str) -> Response:
    """Enqueue a job, and record who did and why."""
    who = act.begin("enqueue")
    form = act.request.form
    try:
        new = _make(_find_type(act.app, name), {field: form[field][0] for field in form})
        with open_session(act.app, is_read_only=False) as opened:
            enqueued = opened.enqueue(new.using(connection=opened.connection))
            if enqueued.created:
                opened.run(ops.ask("enqueue_log", job=enqueued.id, **who))
    except (PayloadError, UsageError) as error:
        with open_session(act.app, is_read_only=True) as opened:
            look = Look(opened, act.request, act.app, act.memory)
            return show_form(look, name, str(error))
    kept = "" if enqueued.created else ", which has this key: nothing was enqueued"
    return act.go(f"/jobs/{enqueued.id}", f"job {enqueued.id}{kept or ' enqueued'}")


def _make(job_type: JobType[..., ..., Any], form: Mapping[str, str]) -> NewJob:
    inputs = list(list_inputs(job_type._declaration.codec))
    typed = {field.name: form.get(f"of.{field.name}", "") for field in inputs}
    options: Any = {
        option: form[option].strip() for option in ("delay", "key") if form.get(option, "").strip()
    }
    return job_type.using(**options).new(**read_arguments(inputs, typed))


def _find_type(app: App, name: str) -> JobType[..., ..., Any]:
    found = app._type_of(name)
    if found is None:
        raise UnknownJobType(name, app._declarations.find_nearest(name))
    return found
