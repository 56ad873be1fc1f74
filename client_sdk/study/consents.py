"""A hospital's word on queries that wait: by its policy alone, or once a person here has approved the question.

No record is looked at here.
"""

from __future__ import annotations

import logging

from client_sdk.api.calls import POLL_SECONDS
from client_sdk.api.client import Client
from client_sdk.errors import ConflictError, NotFoundError, PolicyRefused
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.query_rules import require_answerable
from client_sdk.identity import Membership
from client_sdk.study.delivery import Capabilities
from client_sdk.study.permission import Permission
from study_protocol.study.monitoring import window_in
from study_protocol.study.queries import Consent, Query

_LOG = logging.getLogger(__name__)
# Between two looks for questions: an assignment is waited for meanwhile.
_LOOK_SECONDS = 3.0
YES = Consent(allowed=True)
NO = Consent(allowed=False, code="not-approved", detail="a person at this hospital said no")


class HospitalConsents:
    """This hospital's consents to the queries of one study."""

    def __init__(
        self, client: Client, membership: Membership, policy: SitePolicy, able: Capabilities, permission: Permission
    ) -> None:
        self._client, self._membership, self._policy, self._able = client, membership, policy, able
        self._permission, self._announced = permission, set[str]()

    def speak(self) -> float:
        """Answer every query that waits for this hospital's word. Return the seconds until it should be asked again."""
        if self._able.settings.statistics is None:
            return POLL_SECONDS
        self._permission.keep_decisions()
        for query in self._client.queries(self._membership.study, state="waiting").queries:
            # What the coordinator shows of this hospital's word is no secret, and another one replaces it.
            consents = [entry.consent for entry in query.consents or () if entry.client == self._membership.client]
            consent = self._decide(query)
            if consent is not None and consents != [consent]:
                self._say(query, consent)
        return _LOOK_SECONDS

    def _decide(self, query: Query) -> Consent | None:
        """None: a person has to decide first."""
        if window_in(query.document) is not None and query.document.data_version != self._able.data_version:
            # The next snapshot holds the window: waited for, not refused.
            self._tell_of_window(query)
            return None
        try:
            require_answerable(self._policy, query.document, self._able.data_version)
            self._permission.require_by_rule(query)
        except PolicyRefused as refused:
            return Consent(allowed=False, code=refused.code, detail=refused.detail[:500])
        decided = self._permission.of(query)
        if decided is None:
            self._tell(query)
            return None
        return YES if decided else NO

    def _tell_of_window(self, query: Query) -> None:
        if query.sha256 not in self._announced:
            self._announced.add(query.sha256)
            _LOG.warning(
                "query %d of study %s waits for records up to %s: end this join, and begin it again with these "
                "records, --data-version %s and --accept-changed-records",
                *(query.number, query.study, query.document.data_version, query.document.data_version),
            )

    def _tell(self, query: Query) -> None:
        standing = self._permission.approvals.standing(query.approved_digest)
        lack = f" {standing.lack_in_words}." if standing.agreed else ""
        # Once more when a further person has agreed.
        if (announced := f"{query.sha256}{lack}") in self._announced:
            return
        self._announced.add(announced)
        used = standing.effective is not None
        remark = " It was approved, and that many sums of it have come to nothing since." if used else ""
        _LOG.warning(
            "query %d of study %s waits for a person here: %s%s Approve it with `wardround query approve %s %d`",
            query.number,
            query.study,
            query.document.question.in_words(),
            remark + lack,
            query.study,
            query.number,
        )

    def _say(self, query: Query, consent: Consent) -> None:
        try:
            self._client.put_consent(query.study, query.number, self._membership.client, consent)
        except (ConflictError, NotFoundError) as error:
            # It has begun or failed meanwhile.
            _LOG.info("query %d no longer accepts consents: %s", query.number, error)
            return
        _LOG.info("query %d: this hospital says %s", query.number, "yes" if consent.allowed else f"no ({consent.code})")
