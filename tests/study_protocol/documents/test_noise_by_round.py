"""A noise schedule in the documents of a study: each names the stages, and the noise that is sure in every round."""

from __future__ import annotations

import pytest

from study_protocol.documents.card import Card
from study_protocol.documents.markdown import as_markdown
from study_protocol.documents.pdf_content import certificate_pdf
from study_protocol.documents.registry import as_yaml, entry
from study_protocol.terms import in_words
from tests.factories.certificates import ONE, signed, study, text_of
from tests.factories.settings import settings

FALLING = [{"rounds": 4, "factor": 1.4}, {"rounds": 2, "factor": 0.9}]
WORDS = "4 rounds at 1.4 times, 2 rounds at 0.9 times the noise multiplier, in this order"


def test_the_certificate_names_the_stages_and_the_least_noise() -> None:
    mechanism = signed(noise_multiplier=2.0, noise_schedule=FALLING).certificate.mechanism
    assert mechanism.noise_schedule is not None
    assert [stage.model_dump() for stage in mechanism.noise_schedule] == FALLING
    (level,) = mechanism.levels
    assert 1.79 < level.noise_multiplier <= 2.0 * 0.9


def test_a_certificate_of_equal_noise_is_written_as_before() -> None:
    assert "noise_schedule" not in ONE.raw["certificate"]["mechanism"]


def test_pdf_registry_and_answers_name_the_stages() -> None:
    stated = signed(noise_multiplier=2.0, noise_schedule=FALLING)
    assert f"Noise by round {WORDS}" in " ".join(text_of(certificate_pdf(stated)).split())
    assert WORDS in " ".join(as_yaml(entry(stated.certificate)).split())
    assert any(answer.answer.endswith(f"at least; {WORDS}") for answer in stated.certificate.nist)


def test_the_card_names_the_stages() -> None:
    chosen = settings(max_steps=6, noise_schedule=FALLING)
    card = Card(study("Sepsis").model_copy(update={"settings": chosen}), ONE.certificate, ())
    assert WORDS in " ".join(as_markdown(card).split())


@pytest.mark.parametrize("mine", [True, False])
def test_a_hospital_reads_the_stages_before_it_joins(mine: bool) -> None:
    lines = dict(in_words(settings(max_steps=6, noise_schedule=FALLING), mine=mine))
    assert lines["noise"].endswith(WORDS)
    assert "0.9 that is sure" in lines["noise"]
