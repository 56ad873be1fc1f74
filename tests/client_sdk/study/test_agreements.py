"""What people at a hospital have to agree to before it takes part, where one decides and where two do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged, NotAgreed
from client_sdk.guard.decision import Subject
from client_sdk.guard.decisions import DECISIONS_FILE
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import SitePolicy
from client_sdk.study.agreements import require_all_seen
from client_sdk.study.hospital import Hospital
from client_sdk.study.pinning import as_digits, pin_roster
from client_sdk.study.verifier import active_fingerprint
from client_sdk.study.waiting import Waiting
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.participations import join, ledger_of
from tests.factories.settings import settings

ADA = DecidingPerson("Ada", "privacy officer", account=SystemAccount("1000", "ada"))
BOB, EVE = (
    DecidingPerson("Bob", account=SystemAccount("1001", "bob")),
    DecidingPerson("Eve", account=SystemAccount("1000", "ada")),
)
TWO = plain_policy(approval={"people": 2})
Step = Callable[[], object]


class Scene:
    """A hospital whose people act while `join` waits: each wait takes the next of `steps`."""

    def __init__(self, home: Path) -> None:
        self.steps, self.said = list[Step](), list[str]()
        self.other: Coordinator = coordinator(settings(max_steps=1))
        self.here = hospital(self.other, home, sleep=self._sleep)

    def during(self, *steps: Step) -> None:
        """Set what people do while `join` waits."""
        self.steps = list(steps)

    def _sleep(self, _: float) -> None:
        assert self.steps, f"join waits for people who never come: {self.said[-1:]}"
        self.steps.pop(0)()

    def join(self, policy: SitePolicy = TWO, **options: Any) -> Any:
        return join(self.here, policy=policy, on_wait=self._on_wait, **options)

    def _on_wait(self, waiting: Waiting | None) -> None:
        self.said += [] if waiting is None else [waiting.text]

    def agree_to_policy(self, policy: SitePolicy, *people: DecidingPerson) -> None:
        for person in people:
            self.here.decide(Subject.of_policy(policy), "agree", person, policy)

    def terms(self, dataset: str = "icu") -> Subject:
        return self.here.proposal("sepsis", dataset, TWO).terms

    def agree_to_terms(self, person: DecidingPerson) -> None:
        self.here.decide(self.terms(), "agree", person, TWO)


def is_joined(home: Path) -> bool:
    with ledger_of(home) as ledger:
        return ledger.opened("sepsis") is not None


def pin(here: Hospital, person: DecidingPerson | None = None) -> bool:
    """Whether the roster is pinned with this person's agreement."""
    with here.client("sepsis") as client:
        number = as_digits(active_fingerprint(client.roster("sepsis")))
    return pin_roster(here, "sepsis", number, person).effective is not None


def test_one_person_joins_as_before_and_stands_in_the_ledger(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.join(plain_policy(), person=ADA)
    listed = scene.here.decisions()
    assert [(each.subject.kind, each.verdict) for each in listed] == [
        ("coordinator", "agree"),
        ("policy", "agree"),
        ("terms", "agree"),
    ]
    assert [each.person for each in listed[1:]] == [ADA, ADA]
    # Starting again is no other decision, and a changed policy is one.
    scene.join(plain_policy())
    assert len(scene.here.decisions()) == 3
    scene.join(plain_policy(min_witnesses=0))
    assert [each.subject.kind for each in scene.here.decisions()[3:]] == ["policy"]


def test_join_waits_for_the_second_person_and_says_what_lacks(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.during(lambda: None, lambda: scene.agree_to_terms(EVE), lambda: scene.agree_to_terms(BOB))
    scene.agree_to_policy(TWO, ADA, BOB)
    assert scene.join(person=ADA).rounds_sent == 1
    assert scene.said[0] == (
        "waiting for people here: the terms of study sepsis: 1 of 2 people have agreed (Ada (account ada, privacy "
        "officer)). 1 more has to agree, from another account (`wardround agree sepsis --dataset icu`)"
    )
    assert any("share a name or an account" in text for text in scene.said)


@pytest.mark.parametrize("people", [(), (ADA, BOB)])
def test_one_round_waits_no_longer_for_people_than_for_a_round(
    tmp_path: Path, people: tuple[DecidingPerson, ...]
) -> None:
    scene = Scene(tmp_path)
    scene.agree_to_policy(TWO, *people)
    outcome = scene.join(one_round_within=0.0)
    assert (outcome.more_to_come, outcome.rounds_sent) == (True, 0)
    assert "2 people have to agree" in scene.said[-1]
    assert not is_joined(tmp_path)


def test_a_program_without_a_person_is_none_of_the_two(tmp_path: Path) -> None:
    # A service that agrees by itself would make one person two.
    scene = Scene(tmp_path)
    scene.during(lambda: scene.agree_to_terms(ADA), lambda: None, lambda: scene.agree_to_terms(BOB))
    scene.agree_to_policy(TWO, ADA, BOB)
    assert scene.join().rounds_sent == 1
    assert "2 people have to agree" in scene.said[0]


def test_a_no_of_one_ends_the_waiting_and_nothing_is_joined(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.during(lambda: scene.here.decide(scene.terms(), "decline", BOB, TWO))
    scene.agree_to_policy(TWO, ADA, BOB)
    with pytest.raises(NotAgreed, match="declined by Bob"):
        scene.join(person=ADA)
    assert not is_joined(tmp_path)


@pytest.mark.slow
def test_an_agreement_that_is_taken_back_does_not_count(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.during(
        lambda: scene.here.decide(scene.terms(), "withdraw", ADA, TWO),
        lambda: scene.agree_to_terms(BOB),
        lambda: scene.agree_to_terms(ADA),
    )
    scene.agree_to_policy(TWO, ADA, BOB)
    assert scene.join(person=ADA).rounds_sent == 1
    assert not scene.steps


@pytest.mark.slow
def test_another_data_set_is_another_agreement(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.during(lambda: scene.agree_to_terms(BOB))
    scene.agree_to_policy(TWO, ADA, BOB)
    scene.join(person=ADA)
    agreed = scene.terms()
    scene.during(
        lambda: scene.here.decide(agreed, "agree", BOB, TWO),
        lambda: scene.here.decide(scene.terms("other"), "decline", BOB, TWO),
    )
    with pytest.raises(NotAgreed):
        scene.join(person=ADA, dataset="other")


@pytest.mark.slow
def test_a_policy_for_two_waits_for_two_before_anything_is_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.during(
        lambda: scene.agree_to_policy(TWO, ADA),
        lambda: scene.agree_to_policy(TWO, EVE),
        lambda: scene.agree_to_policy(TWO, BOB),
        lambda: scene.agree_to_terms(BOB),
    )
    asked: list[Any] = []
    scene.join(person=ADA, agree=asked.append)
    assert not scene.steps
    assert "`wardround policy agree`" in scene.said[0]
    assert len(asked) == 1


def test_an_edited_policy_needs_both_anew_also_for_fewer_people(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.agree_to_policy(TWO, ADA, BOB)
    edited, alone = plain_policy(approval={"people": 2}, min_witnesses=1), plain_policy()
    for policy in (edited, alone):
        scene.during(
            lambda policy=policy: scene.agree_to_policy(policy, ADA, EVE),
            lambda policy=policy: scene.here.decide(Subject.of_policy(policy), "decline", BOB, policy),
        )
        with pytest.raises(NotAgreed, match="the site policy is declined by Bob"):
            scene.join(policy, person=ADA)
        assert not scene.steps
    # The one that both agreed to is still in force.
    scene.during(lambda: scene.agree_to_terms(BOB))
    assert scene.join(person=ADA).rounds_sent == 1


def test_another_policy_that_takes_effect_meanwhile_ends_the_waiting(tmp_path: Path) -> None:
    scene, other = Scene(tmp_path), plain_policy(approval={"people": 2}, witness_window=9)
    scene.during(lambda: scene.agree_to_policy(other, ADA, BOB))
    with pytest.raises(NotAgreed, match="start join again"):
        scene.join(person=ADA)


def test_a_roster_is_pinned_by_two_and_a_file_that_was_edited_is_no_pin(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.agree_to_policy(TWO, ADA, BOB)
    (tmp_path / "policy.toml").write_text("[approval]\npeople = 2\n")
    assert not pin(scene.here, ADA)
    assert scene.here.identity.membership("sepsis").pinned is None
    assert not pin(scene.here, EVE)
    assert pin(scene.here, BOB)
    membership = scene.here.identity.membership("sepsis")
    assert membership.pinned is not None
    scene.here.identity.remember(membership.model_copy(update={"pinned": ()}))
    with pytest.raises(ConfigurationError, match="2 people pin it"):
        scene.join(person=ADA)
    scene.here.identity.remember(membership.model_copy(update={"pinned": None}))
    with pytest.raises(ConfigurationError, match="is not the one that people here agreed to"):
        scene.join(person=ADA)
    # Written again from the ledger, where it is in force.
    assert pin(scene.here, ADA)
    scene.during(lambda: scene.agree_to_terms(BOB))
    assert scene.join(person=ADA).rounds_sent == 1


@pytest.mark.slow
def test_a_pin_of_one_person_is_kept_and_an_earlier_one_without_an_entry_holds(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert pin(scene.here)
    membership = scene.here.identity.membership("sepsis")
    (tmp_path / DECISIONS_FILE).unlink()
    scene.join(plain_policy())
    assert scene.here.identity.membership("sepsis") == membership


def test_decisions_that_were_removed_stop_the_next_join(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.join(plain_policy(), person=ADA)
    (tmp_path / DECISIONS_FILE).unlink()
    with pytest.raises(LedgerDamaged, match=r"decisions\.db"):
        scene.join(plain_policy(), person=ADA)


def test_another_policy_that_takes_effect_while_people_read_the_terms_ends_the_join(tmp_path: Path) -> None:
    scene, other = Scene(tmp_path), plain_policy(approval={"people": 2}, witness_window=9)
    scene.agree_to_policy(TWO, ADA, BOB)
    scene.during(lambda: (scene.agree_to_policy(other, ADA, BOB), scene.agree_to_terms(BOB)))
    with pytest.raises(NotAgreed, match="place of the site policy"):
        scene.join(person=ADA)
    assert not is_joined(tmp_path)


def test_a_program_without_a_person_does_not_override_a_no(tmp_path: Path) -> None:
    scene, alone = Scene(tmp_path), plain_policy()
    HospitalLedger.open(ledger_path(tmp_path, "icu")).close()
    scene.agree_to_policy(TWO, ADA)
    scene.here.decide(Subject.of_policy(alone), "decline", BOB, alone)
    with pytest.raises(NotAgreed, match="declined by Bob"):
        scene.join(alone)
    assert not is_joined(tmp_path)
    assert scene.join(alone, person=ADA).rounds_sent == 1


def test_the_marks_of_all_data_sets_are_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.here.decide(Subject("question", "sepsis", "ab" * 32, "one"), "agree", ADA)
    listed = scene.here.decisions()
    with HospitalLedger.open(ledger_path(tmp_path, "other")) as ledger:
        ledger.mark_decisions(listed, TWO.approval)
    require_all_seen(tmp_path, listed)
    with pytest.raises(LedgerDamaged, match="restore it"):
        require_all_seen(tmp_path, [])
