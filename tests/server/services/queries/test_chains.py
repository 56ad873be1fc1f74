"""What follows a question: the study's synthesis, the steps of the question itself, or nothing."""

from __future__ import annotations

import logging

import pytest

from server.services.queries.chains import chain_of, following
from server.services.queries.steps import StepChain
from server.services.queries.synthesis import SynthesisChain
from tests.factories.asked_studies import document
from tests.factories.regressions import later_steps, regression
from tests.factories.settings import statistics_settings
from tests.factories.signed_answers import published
from tests.factories.synthesis import SECTION, section

PLAIN = statistics_settings()
STEPS = later_steps(regression())


def test_a_question_stands_in_the_chain_that_asks_it() -> None:
    synthetic = statistics_settings(epsilon=5.0, synthesis=SECTION)
    first = section().first_question()
    assert isinstance(chain_of(synthetic, first), SynthesisChain)
    assert chain_of(PLAIN, first) is None
    for settings in (PLAIN, synthetic):
        assert chain_of(settings, document()) is None
        assert chain_of(settings, regression(steps=1)) is None
        chains = [chain_of(settings, step) for step in STEPS]
        assert chains == [StepChain(STEPS[0])] * len(STEPS)


def test_a_chain_knows_its_own_steps_and_keeps_what_is_to_come() -> None:
    chain = StepChain(STEPS[0])
    assert [chain.step_of(step) for step in STEPS] == [1, 2, 3]
    assert [chain.step_of(other) for other in (document(), *later_steps(regression(title="another")))] == [None] * 4
    costs = [step.cost() for step in STEPS]
    for place, step in enumerate(STEPS):
        # What is kept for a step before its answer is there is what the step then costs.
        assert chain.kept_after(step) == tuple(costs[place + 1 :])


def test_an_answer_leads_to_the_next_step_and_one_without_numbers_leads_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain, said = StepChain(STEPS[0]), published(STEPS[0])
    found = following(chain, STEPS[0], {}, said)
    assert found is not None
    assert (found.step, found.first_step()) == (2, STEPS[0])
    assert following(chain, STEPS[2], {}, published(STEPS[2])) is None
    assert caplog.records == []
    # A step that ran away: what is not finite is published as no number.
    table = said.answer.tables[0]
    broken = table.model_copy(update={"rows": tuple((*row[:-1], None) for row in table.rows)})
    answer = said.answer.model_copy(update={"tables": (broken, *said.answer.tables[1:])})
    with caplog.at_level(logging.WARNING, "wardround.coordinator"):
        assert following(chain, STEPS[0], {}, said.model_copy(update={"answer": answer})) is None
    assert "leads to no further question" in caplog.text
