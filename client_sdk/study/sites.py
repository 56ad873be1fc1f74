"""The programs of a study's hospitals, where the coordinator lists them."""

from __future__ import annotations

from client_sdk.api.client import Client
from client_sdk.errors import NotFoundError, UnexpectedAnswer
from study_protocol.study.site_versions import SiteVersions


def find_site_versions(client: Client, study: str) -> SiteVersions | None:
    """Return the program of each hospital. None: the coordinator is of another version, which lists none.

    Raises:
        ApiError, ConnectionFailed: the coordinator refuses the question, or cannot be reached.
    """
    try:
        return client.site_versions(study)
    except (NotFoundError, UnexpectedAnswer):
        # The roster and the findings beside this list are of more use than the list.
        return None
