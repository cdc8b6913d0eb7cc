"""What becomes of a mail's template and addresses, and what cannot be rendered."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.headerregistry import Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.kinds.mail.message import Rendered, Templates, build_message
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
        (rb"{{ '\0' }}", r"text.txt has '\\x00'"),
        (rb"{{ '\ud83d' }}", r"text.txt has '\\ud83d'"),
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


WORDS = ("Ann", "b@evil.example,", "(c) <d@x>", "e; f:", '"q"', "\\", "x" * 70, "Ä,", "名")
"""Of a name: some have signs that end an address, one is nearly a line."""


@rule("M70", "M45")
@given(words=st.lists(st.sampled_from(WORDS), max_size=30))
def test_a_name_whatever_its_length_and_signs_is_that_of_one_address(words: list[str]) -> None:
    ann = Address(" ".join(words), "ann", "shop.example")
    asked = Rendered("t", "v", "S", "T", None)
    made = build_message(asked, sender=ann, to=ann, message_id="<1@x>", date=datetime.now(UTC))
    assert max(map(len, bytes(made).splitlines())) <= 998
    read = message_from_bytes(bytes(made), policy=policy.default)
    for header in ("From", "To"):
        [address] = read[header].addresses
        # Python reads a blank between two encoded words, where there is none.
        assert address.display_name.replace(" ", "") == "".join(words).replace(" ", "")
        assert address.addr_spec == "ann@shop.example"
