"""The questions of a synthesis at a hospital, which computes each one again from the coordinator's signed answers."""

from __future__ import annotations

from client_sdk.api.client import Client
from client_sdk.api.pages import all_queries
from client_sdk.errors import PolicyRefused
from client_sdk.identity import Membership
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import Synthesis
from study_protocol.wire.signing import SigningError, decode_public_key
from synthesis.chain import Chain, follow

NOT_BY_RULE = "not-by-rule"


def rule_of(client: Client, membership: Membership, settings: AnySettings) -> SynthesisRule | None:
    """Return the rule of a study's synthesis, or None if it has none."""
    if settings.synthesis is None:
        return None
    return SynthesisRule(client, membership.study, membership.coordinator_key, settings.synthesis)


class SynthesisRule:
    """The rule of one study's synthesis, to which this hospital agreed when it joined.

    coordinator_key: pinned public key, under whose signature answers are believed
    """

    def __init__(self, client: Client, study: str, coordinator_key: str, synthesis: Synthesis) -> None:
        self._client, self._study, self.synthesis = client, study, synthesis
        self._key = decode_public_key(coordinator_key)
        self._answers, self._found = dict[str, PublishedAnswer](), set[str]()

    def chain(self) -> Chain:
        """Return the answers so far, and the question that they lead to.

        Raises:
            SigningError: an answer is not the coordinator's to its question.
            ValueError: an answer is to no question of the rule.
            ApiError, ConnectionFailed: it cannot be asked.
        """
        numbers = {
            query.sha256: query.number for query in all_queries(self._client, self._study) if query.state == "answered"
        }
        return follow(self.synthesis, lambda digest: self._answer(digest, numbers.get(digest)))

    def require(self, document: QueryDocument) -> None:
        """Require that a question in the form of the rule is the one to which the signed answers lead.

        Raises:
            PolicyRefused: it is another one.
            ApiError, ConnectionFailed: the answers cannot be read.
        """
        digest = document.digest()
        if self.synthesis.stage_of(document) is None or digest in self._found:
            return
        try:
            expected = self.chain().document
        except (SigningError, ValueError) as error:
            unsound = f"the answers to the questions of synthesis are not sound: {error}"
            raise PolicyRefused(NOT_BY_RULE, unsound) from error
        if expected != document:
            raise PolicyRefused(
                NOT_BY_RULE,
                "this hospital agreed to the questions of synthesis by their rule, and the signed answers lead to "
                f"{'no further question' if expected is None else 'another one'}",
            )
        self._found.add(digest)

    def _answer(self, digest: str, number: int | None) -> PublishedAnswer | None:
        if digest not in self._answers and number is not None:
            query = self._client.query(self._study, number)
            query.require_believable(self._key)
            if query.answered is None or query.sha256 != digest:
                raise SigningError("bad-signature", f"query {number} holds no answer to the question that it names")
            self._answers[digest] = query.answered.published
        return self._answers.get(digest)
