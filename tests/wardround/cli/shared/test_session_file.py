from __future__ import annotations

from pathlib import Path

import pytest

from study_protocol.files.private import exposure
from wardround.cli.shared.session_file import forget_session, keep_session, kept_session, session_file


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_each_coordinator_has_a_login_of_its_own() -> None:
    one, other = "https://study.example.org", "https://study.example.org:8443"
    file = keep_session(one, "wrs_1_a")
    keep_session(other, "wrs_2_b")
    assert (kept_session(one), kept_session(f"{one}/"), kept_session(other)) == ("wrs_1_a", "wrs_1_a", "wrs_2_b")
    assert exposure(file) is None
    assert exposure(file.parent) is None
    keep_session(one, "wrs_3_c")
    assert kept_session(one) == "wrs_3_c"
    forget_session(one)
    forget_session(one)
    assert (kept_session(one), kept_session(other)) == (None, "wrs_2_b")


@pytest.mark.parametrize("url", [None, "", "https://elsewhere.example.org"])
def test_without_a_login_there_is_no_token(url: str | None) -> None:
    assert kept_session(url) is None


def test_an_address_leads_to_no_other_folder() -> None:
    assert session_file("https://a/../../b").parent == session_file("https://c").parent
