"""What mkdocstrings must know of this package; zensical.toml names this file.

One definition of a call makes two methods: `@both` hides that a call returns the result of its
operation, and that `app.queues.list` has a twin `app.queues.alist` to be awaited.
"""

from __future__ import annotations

from typing import Any

import griffe

BOTH = ("rota.client.both.both", "rota.client.both.both_atomic")
MADE_BY_ROTA = {
    "Context", "DrainEndpoint", "Effect", "EffectBlock", "ExpectedJob", "JobTransaction", "JobType",
    "Namespace", "PlainDrainEndpoint",
}  # fmt: skip
"""Classes, and that above the parts of an App, that programs get and do not make."""
PLAIN = {"class-attribute", "instance-attribute", "module-attribute"}
"""Labels that say nothing to who reads the reference."""


class AsCalled(griffe.Extension):
    """Shows calls and records as a program sees them."""

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Show what a call returns, with the name of its twin beside it."""
        if any(decorator.callable_path in BOTH for decorator in func.decorators):
            func.decorators = []
            func.labels.add(f"await a{func.name}")
            if isinstance(func.returns, griffe.ExprSubscript):
                func.returns = func.returns.slice

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Leave out how the code makes a value, and show of which class a part of an App is."""
        made = attr.value
        if isinstance(made, griffe.ExprCall) and str(made.function) == "cached_property":
            attr.annotation, attr.value = made.arguments[0], None
        if "instance-attribute" in attr.labels and "class-attribute" not in attr.labels:
            attr.value = None
        attr.labels -= PLAIN

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Leave out how Rota makes an object."""
        if cls.name in MADE_BY_ROTA:
            cls.members.pop("__init__", None)
