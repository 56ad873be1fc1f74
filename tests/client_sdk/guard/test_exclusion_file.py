"""Entries that are added to a list of objections: nothing else in the file changes, and none is lost or doubled."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import ConfigurationError
from client_sdk.guard.exclusion_file import ExclusionFile, identity_of
from client_sdk.guard.policy import SitePolicy
from study_protocol.cells.identity import objection_key

NAMED = st.text(min_size=1, max_size=12).filter(lambda text: _is_identifier(text))


def _is_identifier(text: str) -> bool:
    try:
        identity_of(text)
    except ConfigurationError:
        return False
    return True


def listed(file: ExclusionFile) -> list[str]:
    return [entry.identity for entry in file.entries(file.read())]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_list_that_is_not_there(tmp_path: Path, is_named: bool) -> None:
    file = ExclusionFile(tmp_path / "objections.txt", is_named)
    if is_named:
        # It may be on a share that is away: a new one would hide all its entries.
        with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
            file.add(["p1"])
        assert not file.path.exists()
        return
    file.add(["p1"])
    assert file.path.read_bytes() == b"p1\n"
    if os.name != "nt":
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"p9\n"),
        (b"p1", b"p1\np9\n"),
        (b"p1\n\n  p2 \n", b"p1\n\n  p2 \np9\n"),
        (b"p1\r\n'p2'", b"p1\r\n'p2'\r\np9\r\n"),
        (b"\xef\xbb\xbfp1\n", b"\xef\xbb\xbfp1\np9\n"),
        ("p1\n".encode("utf-16"), "p1\np9\n".encode("utf-16")),
        (b"\xfe\xff" + "p1\r\n".encode("utf-16-be"), b"\xfe\xff" + "p1\r\np9\r\n".encode("utf-16-be")),
        ("é1\x0b".encode(), "é1\x0bp9\n".encode()),
    ],
    ids=["empty", "open end", "spaces", "CRLF", "mark", "UTF-16", "big endian", "other end"],
)
def test_every_byte_that_was_there_stays(tmp_path: Path, before: bytes, after: bytes) -> None:
    file = ExclusionFile(tmp_path / "list.txt", True)
    file.path.write_bytes(before)
    file.add(["p9"])
    assert file.path.read_bytes() == after
    # A second time, and in another spelling, nothing is written.
    file.add(["P9"])
    assert file.path.read_bytes() == after


@pytest.mark.skipif(os.name == "nt", reason="modes and links of ordinary users are not of Windows")
def test_the_mode_and_a_link_stay(tmp_path: Path) -> None:
    target = tmp_path / "shared" / "list.txt"
    target.parent.mkdir()
    target.write_bytes(b"p1\n")
    target.chmod(0o640)
    link = tmp_path / "objections.txt"
    link.symlink_to(target)
    ExclusionFile(link, False).add(["p2"])
    assert link.is_symlink()
    assert target.read_bytes() == b"p1\np2\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["list.txt"]


@pytest.mark.parametrize("wrong", [b"p1;p2\n", b"\xff\n", b"p1\0\n", b"1.5E+12\n"])
def test_a_list_with_a_wrong_line_is_left_alone(tmp_path: Path, wrong: bytes) -> None:
    file = ExclusionFile(tmp_path / "list.txt", True)
    file.path.write_bytes(wrong)
    with pytest.raises(ConfigurationError):
        file.add(["p9"])
    assert file.path.read_bytes() == wrong


@given(st.lists(NAMED, min_size=1, max_size=6), st.sampled_from(["", "p1\n", "p1", "x\r\ny\r\n"]))
def test_every_spelling_is_listed_once_and_read_again(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], before: str
) -> None:
    file = ExclusionFile(tmp_path_factory.mktemp("list") / "list.txt", True)
    file.path.write_bytes(before.encode())
    for text in texts:
        file.add([identity_of(text)])
    keys = [objection_key(identity) for identity in listed(file)]
    assert len(keys) == len(set(keys))
    assert {objection_key(identity_of(text)) for text in texts} <= set(keys)


@given(NAMED, st.sampled_from([str.upper, str.lower, lambda text: f"  {text}\u200b ", lambda text: f'"{text}"']))
def test_spellings_that_exclusion_matches_are_one(
    tmp_path_factory: pytest.TempPathFactory, text: str, spell: object
) -> None:
    other = spell(text)  # type: ignore[operator]
    if not _is_identifier(other) or objection_key(identity_of(other)) != objection_key(identity_of(text)):
        return
    file = ExclusionFile(tmp_path_factory.mktemp("list") / "objections.txt", False)
    file.add([identity_of(text)])
    file.add([identity_of(other)])
    assert len(listed(file)) == 1


def test_many_at_once_lose_none(tmp_path: Path) -> None:
    file = ExclusionFile(tmp_path / "objections.txt", False)
    names = [f"p{i % 20}" for i in range(60)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: ExclusionFile(file.path, False).add([name]), names))
    assert sorted(listed(file)) == sorted(set(names))


@pytest.mark.parametrize("text", ["", "  ", "a,b", "nan", "1.2E+9", 'a"b'])
def test_what_is_no_identifier_is_refused_without_its_words(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        identity_of(text)
    assert not text.strip() or text not in str(refused.value)


def test_a_policy_takes_over_what_came_to_its_list_and_gives_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('excluded_patients = ["p0"]\n')
    policy = SitePolicy.in_force(tmp_path)
    assert policy.current() is policy
    file = policy.exclusion_file
    assert file is not None
    assert file.path == tmp_path / "objections.txt"
    file.add(["p1"])
    newer = policy.current()
    assert newer is not policy
    assert [entry.identity for entry in newer.exclusions.entries] == ["p0", "p1"]
    assert newer.current() is newer
    # A line that is removed, and one that stands in the policy already, change nothing in a running study.
    file.path.write_text("P0\n")
    assert newer.current() is newer
    file.path.write_text("p2\n")
    assert [entry.identity for entry in newer.current().exclusions.entries] == ["p0", "p1", "p2"]
    assert SitePolicy.in_force(tmp_path).excluded_patients == ("p0", "p2")
    # The policy that people agree to holds whom it leaves out.
    assert policy.digest() != newer.digest()
    file.path.write_text("p2;p3\n")
    with pytest.raises(ConfigurationError, match="line 1 holds a comma"):
        newer.current()


def test_without_a_policy_the_usual_list_holds(tmp_path: Path) -> None:
    assert SitePolicy.in_force(tmp_path).digest() == SitePolicy().digest()
    (tmp_path / "objections.txt").write_text("p1\n")
    assert SitePolicy.in_force(tmp_path).excluded_patients == ("p1",)
    # Made by a program: there is no list to look at.
    assert (made := SitePolicy(excluded_patients=("p1",))).current() is made
    assert made.exclusion_file is None
