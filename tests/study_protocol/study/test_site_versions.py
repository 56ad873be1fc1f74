"""A hospital's program beside the coordinator's, and beside the number that the study needs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from study_protocol.study.site_versions import compare
from study_protocol.versions import ProgramVersion

COORDINATOR = ProgramVersion("0.9.1", 4)
SINCE = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.mark.parametrize(
    ("program", "comparison", "remark"),
    [
        (COORDINATOR, "same", ""),
        (ProgramVersion("0.9.0", 4), "differs", "differs from the coordinator's"),
        (ProgramVersion("0.9.2", 5), "differs", "differs from the coordinator's"),
        (ProgramVersion("0.8.0", 3), "differs", "differs from the coordinator's"),
        (ProgramVersion("0.7.0", 2), "too-old", "too old: the study needs protocol 3, install version 0.9.1"),
        (ProgramVersion(), "too-old", "too old: the study needs protocol 3, install version 0.9.1"),
        (None, "unknown", "not known yet"),
    ],
)
def test_a_program_is_compared_with_the_need_first(
    program: ProgramVersion | None, comparison: str, remark: str
) -> None:
    site = compare("north", program, SINCE, needed_protocol=3, coordinator=COORDINATOR)
    assert (site.comparison, site.remark) == (comparison, remark)
    known = program is not None
    assert (site.version is not None, site.protocol is not None, site.since == SINCE) == (known, known, known)
