"""How a subject stands after the decisions of one and of several people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.guard.decision import Decision, Subject, SubjectKind, Verdict
from client_sdk.guard.people import DecidingPerson, SystemAccount
from client_sdk.guard.policy import ApprovalRule
from client_sdk.guard.standing import SubjectStanding, in_force, rule_in_force, standing_of

ONE, TWO = ApprovalRule(), ApprovalRule(people=2)
BY_NAME = ApprovalRule(people=2, distinct_accounts=False)
ADA, BOB, CAROL = (DecidingPerson(name, account=SystemAccount(name)) for name in ("ada", "bob", "carol"))


def subject(sha256: str = "aa", kind: SubjectKind = "question", rule: ApprovalRule | None = None) -> Subject:
    return Subject(kind, "" if kind == "policy" else "sepsis", sha256, "words", rule)


def decisions(*steps: tuple[Subject, Verdict, DecidingPerson | None]) -> list[Decision]:
    return [Decision(n, f"{n:064x}", *step, "2026-11-27T10:00:00+00:00") for n, step in enumerate(steps, start=1)]


def standing(
    rule: ApprovalRule, *steps: tuple[Verdict, DecidingPerson | None], kind: SubjectKind = "question"
) -> SubjectStanding:
    about = subject(kind=kind)
    return standing_of(decisions(*((about, *step) for step in steps)), about, rule)


def test_one_person_is_enough_by_default_and_two_are_where_the_rule_says_so() -> None:
    assert standing(ONE, ("agree", ADA)).effective is not None
    waiting = standing(TWO, ("agree", ADA))
    assert (waiting.effective, waiting.missing) == (None, 1)
    done = standing(TWO, ("agree", ADA), ("agree", BOB))
    assert done.effective is not None
    assert (done.effective.person, done.missing) == (BOB, 0)


@pytest.mark.parametrize(
    "second",
    [ADA, DecidingPerson("ADA", account=SystemAccount("other")), DecidingPerson("Grace", account=ADA.account)],
    ids=str,
)
def test_one_person_with_two_names_or_two_accounts_is_one(second: DecidingPerson) -> None:
    waiting = standing(TWO, ("agree", ADA), ("agree", second))
    assert waiting.missing == 1
    assert "1 more has to agree, from another account" in waiting.in_words


def test_accounts_count_only_where_the_rule_says_so() -> None:
    shared = DecidingPerson("Grace", account=ADA.account)
    assert standing(BY_NAME, ("agree", ADA), ("agree", shared)).effective is not None


def test_a_no_of_one_is_a_no_and_all_agree_anew_after_it() -> None:
    declined = standing(TWO, ("agree", ADA), ("decline", BOB))
    assert declined.declined is not None
    assert declined.in_words == "declined by bob (account user bob) on 2026-11-27"
    again = standing(TWO, ("agree", ADA), ("decline", BOB), ("agree", BOB))
    assert (again.effective, again.declined, again.missing) == (None, None, 1)


def test_an_agreement_is_taken_back_by_the_person_who_gave_it_alone() -> None:
    assert standing(TWO, ("agree", ADA), ("withdraw", ADA), ("agree", BOB)).missing == 1
    assert standing(TWO, ("agree", ADA), ("withdraw", BOB), ("agree", BOB)).missing == 0


def test_an_approval_without_a_person_counts_alone_and_never_as_one_of_two() -> None:
    assert standing(ONE, ("agree", None)).effective is not None
    assert standing(TWO, ("agree", None), ("agree", ADA)).missing == 1


def test_an_effective_approval_stands_while_the_next_one_waits_for_its_people() -> None:
    renewed = standing(TWO, ("agree", ADA), ("agree", BOB), ("agree", ADA))
    assert renewed.effective is not None
    assert renewed.effective.number == 2
    assert len(renewed.agreed) == 1


def test_another_digest_needs_both_anew_and_one_roster_is_in_force() -> None:
    first, second = subject("aa", "roster"), subject("bb", "roster")
    steps = [(first, "agree", ADA), (second, "agree", BOB)]
    assert in_force(decisions(*steps), first, TWO) is None
    steps += [(first, "agree", BOB)]
    assert in_force(decisions(*steps), first, TWO) == "aa"
    # The half agreement to the other one ended with it.
    steps += [(second, "agree", ADA)]
    assert in_force(decisions(*steps), first, TWO) == "aa"
    steps += [(second, "agree", BOB)]
    assert in_force(decisions(*steps), first, TWO) == "bb"
    assert standing_of(decisions(*steps), first, TWO).in_words == "replaced by a later one"


def test_a_coordinator_s_key_is_agreed_to_with_the_terms_that_hold_it() -> None:
    assert standing(TWO, ("agree", ADA), kind="coordinator").effective is not None


def policy(sha256: str, rule: ApprovalRule) -> Subject:
    return subject(sha256, "policy", rule)


def test_fewer_people_are_a_change_that_needs_the_people_of_before() -> None:
    strict, lax = policy("strict", TWO), policy("lax", ONE)
    steps = [(strict, "agree", ADA)]
    assert rule_in_force(decisions(*steps)) == ONE
    steps += [(strict, "agree", BOB)]
    assert rule_in_force(decisions(*steps)).people == 2
    steps += [(lax, "agree", ADA), (lax, "agree", DecidingPerson("Eve", account=ADA.account))]
    assert standing_of(decisions(*steps), lax, lax.rule or ONE).missing == 1
    assert rule_in_force(decisions(*steps)).people == 2
    steps += [(lax, "agree", BOB)]
    assert rule_in_force(decisions(*steps)).people == 1
    assert standing_of(decisions(*steps), strict, TWO).effective is None


def test_the_accounts_of_the_policy_before_count_for_the_next_one() -> None:
    by_account, by_name = policy("account", TWO), policy("name", BY_NAME)
    steps = [(by_account, "agree", ADA), (by_account, "agree", BOB)]
    steps += [(by_name, "agree", ADA), (by_name, "agree", DecidingPerson("Eve", account=ADA.account))]
    assert rule_in_force(decisions(*steps)).distinct_accounts
    # From a hospital where one person decided, it needs no second account.
    steps = [(policy("first", ONE), "agree", ADA), (by_name, "agree", ADA)]
    steps += [(by_name, "agree", DecidingPerson("Eve", account=ADA.account))]
    assert rule_in_force(decisions(*steps)) == BY_NAME


def test_a_policy_that_no_one_can_meet_does_not_lock_the_hospital() -> None:
    first, slip = policy("first", ONE), policy("slip", ApprovalRule(people=10))
    steps = [(first, "agree", ADA), (slip, "agree", ADA)]
    assert rule_in_force(decisions(*steps)) == ONE
    assert standing_of(decisions(*steps), first, ONE).effective is not None


@given(
    st.lists(
        st.tuples(st.sampled_from(["agree", "decline", "withdraw"]), st.sampled_from([ADA, BOB, CAROL])), max_size=9
    )
)
def test_two_different_people_have_agreed_after_the_last_no_where_it_took_effect(steps) -> None:
    last_no = max((place for place, (verdict, _) in enumerate(steps) if verdict == "decline"), default=-1)
    agreed = {person.name for verdict, person in steps[last_no + 1 :] if verdict == "agree"}
    state = standing(TWO, *steps)
    if state.effective is not None:
        assert len(agreed) >= 2
    if len(agreed) >= 2 and not any(verdict == "withdraw" for verdict, _ in steps):
        assert state.effective is not None
