"""Names of people, the accounts beside them, and how many different people they are."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import client_sdk.guard.people as people
from client_sdk.errors import ConfigurationError
from client_sdk.guard.people import MAX_NAME_LENGTH, DecidingPerson, SystemAccount, count_people

HERE = SystemAccount("1000", "ada")


def person(name: str, account: str = "1000") -> DecidingPerson:
    return DecidingPerson(name, account=SystemAccount(account))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (" Ada Lovelace ", "Ada Lovelace"),
        ("Zoe\u0301", "Zoé"),
        ("李小龍", "李小龍"),
        ("أحمد", "أحمد"),
        ("\u00a0Ada \u2003 Lovelace\u3000", "Ada Lovelace"),
        ("O'Neil-3", "O'Neil-3"),
    ],
)
def test_a_name_is_trimmed_and_kept_in_one_form(name: str, kept: str) -> None:
    assert person(name).name == kept


@pytest.mark.parametrize(
    "name",
    [
        *("", "  ", "\u3000", "x" * 101, "...", "\u0301", "\u0301Ada"),
        *("Ada (account bob)", "Ada; Bob", "Ada）", "Ada\ufe54 Bob", "[Ada]", "{Ada}"),
        *("a\nb", "a\tb", "\x1b[2J", "a\x00", "a\x9b", "a\u2028b", "a\ud800", "a\ue000"),
        *("a\u200bb", "a\u202eb", "a\u2066", "a\ufeff", "a\U000e0041"),
        *("a\u034f", "a\ufe0f", "\u3164", "a\u115f", "\u2800"),
    ],
)
def test_a_name_that_a_person_cannot_see_or_tell_apart_is_refused_without_its_text(name: str) -> None:
    with pytest.raises(ConfigurationError, match="a person's name") as refused:
        person(name)
    assert len(name) < 2 or name not in str(refused.value)


def test_role_and_reason_may_be_left_out_and_follow_the_same_rules() -> None:
    named = DecidingPerson("Ada", "privacy officer", " agreed\n on the telephone ", HERE)
    assert (named.role, named.reason) == ("privacy officer", "agreed on the telephone")
    assert str(named) == "Ada (account ada, privacy officer)"
    assert str(DecidingPerson("Ada", account=SystemAccount("1000"))) == "Ada (account user 1000)"
    roles = ("a\u200b", "officer); Bob (account bob", "x" * 101)
    for wrong in (*({"role": role} for role in roles), {"reason": "\x1b"}, {"reason": "x" * 501}):
        with pytest.raises(ConfigurationError, match="a person's r"):
            DecidingPerson("Ada", account=HERE, **wrong)


@given(st.text(max_size=2 * MAX_NAME_LENGTH))
def test_any_text_is_a_name_that_reads_back_or_a_plain_error(text: str) -> None:
    try:
        named = person(text)
    except ConfigurationError:
        return
    assert 1 <= len(named.name) <= MAX_NAME_LENGTH
    assert not any(unicodedata.category(each)[0] == "C" for each in named.name)
    assert person(named.name) == named
    assert DecidingPerson.from_dict(named.to_dict()) == named
    # Comparing does not depend on how often it was folded.
    assert named.is_same(person(text))


@pytest.mark.parametrize(
    "others",
    [("Ada", "ADA"), ("Ada", "Ａｄａ"), ("Straße", "STRASSE"), ("Zoé", "ZOE\u0301"), ("A  B", "a b"), ("ﬁnn", "Finn")],
)
def test_one_name_in_two_spellings_is_one_person(others: tuple[str, str]) -> None:
    first, second = person(others[0], "1"), person(others[1], "2")
    assert first.key == second.key
    assert count_people([first, second], distinct_accounts=False) == 1


def test_people_are_counted_by_name_and_where_it_is_wanted_by_account() -> None:
    ada, bob, carol = person("Ada", "1"), person("Bob", "1"), person("Carol", "2")
    assert count_people([], distinct_accounts=True) == 0
    assert count_people([ada, bob, carol], distinct_accounts=False) == 3
    assert count_people([ada, bob, carol], distinct_accounts=True) == 2
    # A name on two accounts links them: one person may hold both.
    assert count_people([ada, bob, person("ada", "2"), carol], distinct_accounts=True) == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("123")), max_size=7), st.randoms())
def test_the_count_depends_on_no_order_and_is_no_more_than_names_or_accounts(
    pairs: list[tuple[str, str]], draw
) -> None:
    listed = [person(*pair) for pair in pairs]
    counted = count_people(listed, distinct_accounts=True)
    assert counted <= min(len({name for name, _ in pairs}), len({account for _, account in pairs}))
    draw.shuffle(listed)
    assert count_people(listed, distinct_accounts=True) == counted


@pytest.mark.posix
class TestAccount:
    def test_variables_of_the_environment_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = SystemAccount.current()
        for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "SUDO_USER", "SUDO_UID"):
            monkeypatch.setenv(name, "bob")
        assert SystemAccount.current() == before

    def test_a_user_without_an_entry_has_a_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # As in a container that runs under any number: `getpass.getuser` raises there.
        monkeypatch.setattr(people, "_login_uid", lambda: None)
        monkeypatch.setattr(os, "getuid", lambda: 1_234_567)
        assert SystemAccount.current() == SystemAccount("1234567")
        assert DecidingPerson.acting().name == "user 1234567"
        monkeypatch.setattr(people, "_user_name", lambda _: "ada (guest)")
        assert DecidingPerson.acting().name == "ada _guest_"

    def test_the_login_user_comes_before_the_one_of_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(people, "_login_uid", lambda: 1_234_567)
        assert SystemAccount.current().identifier == "1234567"

    @pytest.mark.parametrize(
        ("written", "uid"), [("1000", 1000), ("0", 0), ("4294967295", None), ("-1", None), ("", None), (None, None)]
    )
    def test_an_unset_login_is_none(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str | None, uid: int | None
    ) -> None:
        if written is not None:
            (tmp_path / "loginuid").write_text(written)
        monkeypatch.setattr(people, "_LOGIN_UID_FILE", tmp_path / "loginuid")
        assert people._login_uid() == uid

    def test_a_given_name_does_not_replace_the_account(self) -> None:
        assert DecidingPerson.acting("Ada").account == SystemAccount.current()
        assert DecidingPerson.acting().name == str(SystemAccount.current())


def test_on_windows_the_account_is_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "os", SimpleNamespace(name="nt", getlogin=lambda: "Ada"))
    assert SystemAccount.current() == SystemAccount("ada", "Ada")
