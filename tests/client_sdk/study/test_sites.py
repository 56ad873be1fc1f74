"""The programs of a study's hospitals, from coordinators that list them and from others."""

from __future__ import annotations

import httpx
import pytest

from client_sdk.errors import ServerFailure
from client_sdk.study.sites import find_site_versions
from study_protocol.study.site_versions import SiteVersions
from tests.factories.answers import client, script
from tests.factories.wire_answers import problem, reply

LISTED = SiteVersions(
    study="sepsis", coordinator_version="0.9.1", coordinator_protocol=4, needed_protocol=2, hospitals=[]
)


@pytest.mark.parametrize(
    ("answer", "versions"),
    [
        (reply(LISTED), LISTED),
        (problem(404, "not-found"), None),
        (httpx.Response(200, json={"study": "sepsis", "sites": []}), None),
    ],
    ids=["this version", "an earlier one", "a later one"],
)
def test_a_coordinator_of_another_version_lists_none(answer: httpx.Response, versions: SiteVersions | None) -> None:
    api, _ = client(script(answer)[0])
    assert find_site_versions(api, "sepsis") == versions


def test_a_refusal_is_told() -> None:
    api, _ = client(script(problem(500, "internal"))[0])
    with pytest.raises(ServerFailure):
        find_site_versions(api, "sepsis")
