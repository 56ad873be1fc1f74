"""One identity in one directory: what a hospital is asked before it takes part, and what it shows of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import KeyFileError, NotAgreed
from client_sdk.study.hospital import Hospital
from study_protocol.wire.signing import fingerprint
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join, ledger_of
from tests.factories.settings import settings


def test_what_a_study_asks_for_is_shown_before_anything_is_written_and_no_means_no(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    shown: list[Any] = []

    def decline(proposal: Any) -> None:
        shown.append(proposal)
        raise NotAgreed("no")

    with pytest.raises(NotAgreed):
        join(here, agree=decline)
    (proposal,) = shown
    assert (proposal.study, proposal.dataset, proposal.pinned, proposal.joined) == ("sepsis", "icu", False, False)
    assert proposal.settings == settings()
    proposal.require_allowed()
    with ledger_of(tmp_path) as ledger:
        assert len(ledger.entries) == 0
    assert not any(other.updates.values())


def test_a_hospital_that_never_enrolled_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="enrol first"):
        Hospital.open(tmp_path)


def test_a_hospital_shows_its_fingerprint_and_never_its_key(tmp_path: Path) -> None:
    here = hospital(coordinator(), tmp_path)
    mark = fingerprint(here.identity.key.public_key())
    assert mark[:8] in repr(here).replace(" ", "")
    assert here.client("sepsis").study("sepsis").study == "sepsis"
