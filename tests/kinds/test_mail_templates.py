"""What becomes of a mail's template: what it escapes, and what cannot be rendered."""

from __future__ import annotations

from pathlib import Path

import pytest

import rota
from rota.kinds.mail.message import Templates
from tests.support.rules import rule

NAME = "<a href=//evil.example>"
SHARED = {
    "base.jinja": "{{ name }}{% block more %}{% endblock %}",
    "part.html": "{{ name }}",
    "m.j2": "{% macro greet(name) %}{{ name }}{% endmacro %}",
}


@rule("M70")
@pytest.mark.parametrize(
    "content",
    [
        '{% include "t/subject.txt" %}',
        '{% include "part.html" %}',
        '{% extends "base.jinja" %}',
        '{% import "m.j2" as m %}{{ m.greet(name) }}',
        '{% set kept %}{% include "m.j2" %}{{ name }}{% endset %}{{ kept }}',
    ],
)
def test_escaping_follows_the_part_and_not_the_files_that_it_includes(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "t").mkdir()
    parts = {"t/subject.txt": "{{ name }}", "t/text.txt": content, "t/html.html": content}
    for file, text in {**SHARED, **parts}.items():
        (tmp_path / file).write_text(text)
    made = Templates(tmp_path).render("t", {"name": NAME})
    assert (made.subject, made.text) == (NAME, NAME)
    assert made.html == "&lt;a href=//evil.example&gt;"


@rule("M70")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{{ nam }}", "'nam' is undefined"),
        (b"{{ name + 1 }}", "TypeError: can only concatenate"),
        (b"{{ 1 / 0 }}", "ZeroDivisionError"),
        (b'{% include "t/text.txt" %}', "RecursionError"),
        (b"\xe4", "UnicodeDecodeError"),
        (b'{% include "none.html" %}', "none.html"),
    ],
)
def test_a_template_that_cannot_be_rendered_makes_its_mail_dead(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/subject.txt").write_text("S")
    (tmp_path / "t/text.txt").write_bytes(content)
    with pytest.raises(rota.Dead, match=says):
        Templates(tmp_path).render("t", {"name": NAME})
