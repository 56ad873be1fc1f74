"""The errors on the hospital's side, drawn once. The first and the last stand in `private_learning.errors`.

WardroundError
├── ConfigurationError            a setting, a file or an argument is missing or wrong
│   └── KeyFileError              the identity key is missing, readable by others, or damaged
├── NotAgreed                     a person was asked whether to take part, and said no
├── ConnectionFailed              the coordinator cannot be reached: trying again may help
├── ApiError                      the coordinator answered with a problem document
│   ├── AuthenticationError       401, 403: key, token, clock or role
│   │   └── ClockSkewError        401 clock-skew even after correcting by the server's time once
│   ├── NotFoundError             404
│   ├── ConflictError             409, 410: the state does not allow it (`code` says which)
│   ├── InvalidRequestError       other 4xx
│   └── ServerFailure             5xx
├── QueryFailed                   a query failed: `code` says why, asking again tries anew
├── QueryNotAnswered              no answer came in the time that was given: the query goes on waiting
├── UnexpectedAnswer              an answer that is not of this protocol
├── NotTrusted                    the coordinator contradicts what it said before: the hospital stops
│   ├── BadAssignment             signature, study, client, settings or model digest
│   ├── LedgerNotExtended         a shorter or rewritten ledger
│   ├── LedgerContradicted        an entry says what this hospital knows to be otherwise
│   ├── LedgerForked              another hospital vouches for another ledger
│   ├── AnswerNotSigned           the answer to a query is not the coordinator's own, or answers something else
│   ├── SessionContradicted       a secure sum is not of what this hospital was shown, or others were shown another
│   ├── EvidenceKept              an earlier one of these was proved, and no person has looked at the proof
│   ├── RosterNotPinned           a member that the pinned roster does not hold
│   └── UpdateDisputed            the coordinator holds another update under this hospital's name
├── Refused                       this hospital says no before anything is computed: `code` goes to the coordinator
│   ├── PolicyRefused             the site policy does not allow it
│   ├── OwnBudgetExceeded         the hospital's own limit would be passed
│   └── LostLedger                earlier rounds are known, but not to the ledger on this disk
├── RecordsChanged                the records are not those that studies on this data set have used
├── SessionEnded                  the secure sum of a round failed or went on without this hospital: `code` says why
├── LedgerInUse                   another process holds this ledger
├── LedgerDamaged                 the ledger on this disk is not what was written
├── LedgerNotWritten              the disk is full or read-only, and the ledger is unchanged
└── TrainingStopped               a number out of bounds met while training, before any sending
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from private_learning.errors import ConfigurationError as ConfigurationError
from private_learning.errors import TrainingStopped as TrainingStopped
from private_learning.errors import WardroundError as WardroundError
from study_protocol.study.messages import Problem
from study_protocol.study.query_words import state_in_words
from study_protocol.wire.printable_text import printable

if TYPE_CHECKING:
    from study_protocol.study.queries import Query


class KeyFileError(ConfigurationError):
    """The text says what is wrong with the key file, and never its content."""


class NotAgreed(WardroundError):
    """The person declined, before any writing or sending."""


class ConnectionFailed(WardroundError):
    """No answer. `sent` is False only if the request surely never reached the coordinator."""

    def __init__(self, detail: str, *, sent: bool = True) -> None:
        super().__init__(detail)
        self.sent = sent


class ApiError(WardroundError):
    """A problem document (RFC 9457). `code` is stable, `detail` says what to do next."""

    def __init__(self, problem: Problem) -> None:
        # Text only: it goes into logs and onto terminals.
        super().__init__(printable(f"{problem.detail} [{problem.code}, request {problem.request_id}]"))
        self.problem = problem
        self.status = problem.status
        self.code = problem.code
        self.detail = printable(problem.detail)
        self.request_id = problem.request_id


class AuthenticationError(ApiError):
    """Key, token, clock or role."""


class ClockSkewError(AuthenticationError):
    """Set this machine's clock: even the coordinator's own time did not help."""


class NotFoundError(ApiError):
    """No such study, round, model or key."""


class ConflictError(ApiError):
    """The state does not allow it."""


class InvalidRequestError(ApiError):
    """The request is not valid. The same one will be refused again."""


class ServerFailure(ApiError):
    """The coordinator failed or is away."""


class QueryFailed(WardroundError):
    """`query` is the query, and `code` says why it failed, for programs. The text says what to do."""

    def __init__(self, query: Query) -> None:
        self.query, self.code = query, query.reason or "unknown"
        super().__init__(printable(f"query {query.number} of {query.study} {state_in_words(query)}"))


class QueryNotAnswered(WardroundError):
    """`query` is the query as it was seen last. Asking again costs no budget and waits for the same answer."""

    def __init__(self, query: Query) -> None:
        self.query = query
        text = f"query {query.number} of {query.study} is not answered yet ({state_in_words(query)}). Ask again later"
        super().__init__(printable(f"{text}: it is the same query, and costs nothing more"))


class UnexpectedAnswer(WardroundError):
    """Something between here and the coordinator answered, or the two speak different versions."""

    def __init__(self, detail: str, request_id: str | None = None) -> None:
        super().__init__(detail)
        self.request_id = request_id


class NotTrusted(WardroundError):
    """The hospital stops, and sends no message until a person has looked. `code` is stable.

    proof  what the coordinator has signed and shown, where that proves it, as JSON to be kept
    """

    code = "not-trusted"

    def __init__(self, detail: str, proof: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.proof = proof


class BadAssignment(NotTrusted):
    """Signature, study, client, settings, roster or model are not what they must be."""

    code = "bad-assignment"


class LedgerNotExtended(NotTrusted):
    """The coordinator's ledger is shorter than it was, or rewritten, or unsigned."""

    code = "ledger-not-extended"


class LedgerContradicted(NotTrusted):
    """An entry cannot be, or is not what this hospital knows: of the settings, of its own part, of what it costs."""

    code = "ledger-contradicted"


class LedgerForked(NotTrusted):
    """Two hospitals were shown two ledgers."""

    code = "ledger-forked"


class SessionContradicted(NotTrusted):
    """A secure sum's parameters are not those of what was shown here, or the others were shown another session."""

    code = "session-contradicted"


class AnswerNotSigned(NotTrusted):
    """Not signed by the coordinator's key, or the answer to something else."""

    code = "answer-not-signed"


class EvidenceKept(NotTrusted):
    """A proof against this study's coordinator lies in this hospital's directory: a person decides what follows."""

    code = "evidence-kept"


class RosterNotPinned(NotTrusted):
    """A member, or a member's key, that the pinned roster does not hold."""

    code = "roster-not-pinned"


class UpdateDisputed(NotTrusted):
    """The coordinator holds another update under this hospital's name."""

    code = "update-disputed"


class Refused(WardroundError):
    """A no of this hospital. `code` and text are sent to the coordinator, so they must not contain facts about
    patients."""

    # What proves that the coordinator contradicts itself. A hospital that has one takes no part any more.
    proof: Mapping[str, Any] | None = None

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class PolicyRefused(Refused):
    """The site policy does not allow it."""


class OwnBudgetExceeded(Refused):
    """The round would pass the hospital's own limit."""


class LostLedger(Refused):
    """A person must say that the ledger is lost (`--accept-lost-ledger`) or bring it back."""


class RecordsChanged(WardroundError):
    """The data set holds other records than its studies have used, and no person here has accepted that."""


class SessionEnded(WardroundError):
    """The secure sum of a round failed or went on without this hospital. `code` says why."""

    def __init__(self, code: str) -> None:
        message = f"the secure sum of this round went on without this hospital, or failed ({code})"
        if code == "different-message":
            message += (
                ": a second installation has spoken for this hospital, or its folder was put back to an older copy"
            )
        super().__init__(printable(message))
        self.code = code


class LedgerInUse(WardroundError):
    """Two processes on one ledger could charge one round and send two updates."""


class LedgerDamaged(WardroundError):
    """The ledger's chain is broken or it was written by another version."""


class LedgerNotWritten(WardroundError):
    """The ledger cannot be written. No state was changed, and no result was computed or sent."""


def api_error(problem: Problem) -> ApiError:
    """The error class that fits the problem's status."""
    # Before its status, 401: it is the clock that a person has to mend, not the key.
    if problem.code == "clock-skew":
        return ClockSkewError(problem)
    kinds: dict[int, type[ApiError]] = {
        401: AuthenticationError,
        403: AuthenticationError,
        404: NotFoundError,
        409: ConflictError,
        410: ConflictError,
    }
    fallback = ServerFailure if problem.status >= 500 else InvalidRequestError
    return kinds.get(problem.status, fallback)(problem)
