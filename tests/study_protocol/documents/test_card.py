"""A model's card: its sections and the people it counts."""

from __future__ import annotations

import copy

import pytest
from pydantic import ValidationError

from study_protocol.documents.card import OUTSIDE, TO_WRITE, Card, Notes
from study_protocol.documents.kept_windows import kept_in_words
from study_protocol.documents.markdown import as_markdown
from study_protocol.documents.registry import _mechanisms, entry
from study_protocol.study.messages import Metrics
from tests.factories.certificates import ONE, sealed, signed, study
from tests.factories.monitored_studies import monitored_study
from tests.factories.settings import settings


def test_a_hospital_that_left_is_counted_with_those_whose_records_were_used() -> None:
    value = copy.deepcopy(ONE.raw["certificate"])
    value["members"] |= {"active": 2, "least": 2, "most": 3}
    stated = sealed(value).certificate
    assert "2 to 3 hospitals" in entry(stated)["deployment"]["basic"]["description"]
    assert "Records of 2 to 3 hospitals" in as_markdown(Card(study("Sepsis"), stated, ()))


def test_a_card_says_which_part_was_trained_on_which_file() -> None:
    part = {"trainable": ["4.*", "2.bias"], "backbone": {"sha256": "ab" * 32}}
    chosen = settings(bayesian=True, max_steps=6, training=part)
    text = as_markdown(Card(study("Sepsis").model_copy(update={"settings": chosen}), ONE.certificate, ()))
    assert "Trained part" in text
    assert "2.bias" in text
    assert "ab" * 32 in text
    assert "Trained part" not in as_markdown(Card(study("Sepsis"), ONE.certificate, ()))


def test_a_card_says_what_is_kept_for_later_patients() -> None:
    chosen = monitored_study()
    text = as_markdown(Card(study("Sepsis").model_copy(update={"settings": chosen}), ONE.certificate, ()))
    (line,) = kept_in_words(chosen)
    assert line in text
    assert "later patients" not in as_markdown(Card(study("Sepsis"), ONE.certificate, ()))


def test_card_certificate_and_registry_say_that_a_clip_norm_is_adaptive() -> None:
    moving = {"adaptive_clip": {"quantile": 0.5, "rate": 0.2}, "noise_multiplier": 0.5}
    stated = signed(**moving, named=False)
    said = "clip norm adaptive, starting at 1"
    assert [level.adaptive for level in stated.certificate.mechanism.levels] == [True]
    assert any(said in answer.answer for answer in stated.certificate.nist)
    assert any(said in line for line in _mechanisms(stated.certificate))
    chosen = settings(max_steps=6, **moving)
    text = as_markdown(Card(study("Sepsis").model_copy(update={"settings": chosen}), stated.certificate, ()))
    assert "adaptive, starting at 1" in text
    # Of a constant norm nothing is written that earlier versions did not write.
    assert all("adaptive" not in level for level in ONE.raw["certificate"]["mechanism"]["levels"])


def test_a_card_has_its_sections_in_the_order_of_mitchell_and_others() -> None:
    card = Card(study(""), ONE.certificate, ())
    assert card.title == "sepsis"
    assert [section.title for section in card.sections()] == [
        "Model details",
        "Contacts",
        "Intended use",
        "Out-of-scope use",
        "Factors",
        "Metrics and evaluation data",
        "Training data",
        "Training settings",
        "Privacy",
        "Ethical considerations",
        "Limitations",
        "How to load it and predict",
    ]
    assert [section.title for section in card.sections() if section.written == TO_WRITE] == [
        *("Contacts", "Intended use", "Out-of-scope use", "Factors", "Ethical considerations", "Limitations"),
    ]


def test_limits_are_rounded_up_and_those_without_a_promise_are_left_out() -> None:
    """Of the certificate: 5.5685… spent at 40 and at 50, chances of .9962 and .7285; hospitals have no limit."""
    card = Card(study("Sepsis"), ONE.certificate, ())
    (privacy,) = [section for section in card.sections() if section.title == "Privacy"]
    assert privacy.rows == (
        ("each patient, bayesian", "5.569", "40", "1e-5", "99.7 %"),
        ("each patient, classical", "5.569", "50", "1e-5", "72.9 %"),
    )


def test_measurements_are_said_to_be_outside_the_guarantee() -> None:
    measured = (
        (1, Metrics(evaluation_set="holdout", values={"auc": 0.912345})),
        (2, Metrics(evaluation_set="holdout", values={"auc": 1 / 3})),
    )
    sections = {section.title: section for section in Card(study("S"), ONE.certificate, measured).sections()}
    found = sections["Metrics and evaluation data"]
    assert (found.lines, found.rows) == (
        (OUTSIDE,),
        (("1", "holdout", "auc", "0.9123"), ("2", "holdout", "auc", "0.3333")),
    )


def test_before_a_model_is_released_there_is_nothing_to_load() -> None:
    stated = ONE.certificate.model_copy(update={"model": None})
    sections = {section.title: section for section in Card(study("S"), stated, ()).sections()}
    load = sections["How to load it and predict"]
    assert (load.lines, load.code) == (("No model has been released.",), None)


def test_notes_have_known_entries_alone() -> None:
    with pytest.raises(ValidationError, match="intended_uses"):
        Notes.model_validate({"intended_uses": "x"})
