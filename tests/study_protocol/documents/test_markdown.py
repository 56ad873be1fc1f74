"""Cards as Markdown: the words of others stay text."""

from __future__ import annotations

import re

import pytest
import yaml

from study_protocol.documents.card import Card, Notes
from study_protocol.documents.markdown import as_markdown, plain
from study_protocol.documents.pdf_content import card_pdf
from study_protocol.study.messages import Metrics
from tests.factories.certificates import HOSTILE, ONE, study


@pytest.mark.parametrize("title", HOSTILE, ids=["source", "long", "scripts", "inputs"])
def test_a_card_shows_the_words_of_others_as_text_and_its_metadata_can_be_read(title: str) -> None:
    measured = Metrics(evaluation_set=title[:200], values={"accuracy": 0.91})
    card = Card(study(title), ONE.certificate, ((2, measured),), Notes(license="apache-2.0"))
    text = as_markdown(card)
    _, head, body = text.split("---\n", 2)
    values = yaml.safe_load(head)
    assert (values["license"], values["model-index"][0]["name"]) == ("apache-2.0", title)
    assert "<script>" not in body.replace("\\<script\\>", "")
    assert re.search(r"(?<!\\)\]\(|(?<!\\)://", body) is None
    assert f"# {plain(title)}" in body
    assert "outside the guarantee" in body
    assert body.count("TO BE WRITTEN") == 6
    assert card_pdf(card) == card_pdf(card)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\n  lines", "two lines"),
        ("*a* _b_ `c`", r"\*a\* \_b\_ \`c\`"),
        ("[x](http://e.example)", r"\[x\](http\://e.example)"),
        ("www.e.example at 3:15", r"www\.e.example at 3:15"),
        ("a | b <i> ~c~ $d$ &amp; !e", r"a \| b \<i\> \~c\~ \$d\$ \&amp; \!e"),
        ("# heading", r"\# heading"),
    ],
)
def test_signs_of_markup_are_escaped(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_notes_stay_markdown_and_a_card_without_measurements_has_no_index() -> None:
    text = as_markdown(
        Card(study("Sepsis"), ONE.certificate, (), Notes(limitations="See **here**.\n\n- one", citation="Us"))
    )
    assert "\nSee **here**.\n\n- one\n" in text
    assert text.rstrip().endswith("## Citation\n\nUs")
    _, head, _ = text.split("---\n", 2)
    assert set(yaml.safe_load(head)) == {"library_name", "tags"}
