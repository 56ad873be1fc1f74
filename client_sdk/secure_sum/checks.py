"""The refusals of a hospital in a secure sum: parameters, cohorts, survivors and signatures, each checked by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from client_sdk.secure_sum.refusals import CohortRefused, ParametersRefused, SurvivorsRefused
from client_sdk.secure_sum.steps import Current, Party
from client_sdk.secure_sum.store import Opened
from study_protocol.secure_sum import transcript
from study_protocol.secure_sum.messages import (
    ConsistencyMessage,
    KeysMessage,
    Manifest,
    ParameterFault,
    SessionParameters,
    require_sound,
)
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.messages import SignedParameters
from study_protocol.study.reasons import SAME_MODEL_AGAIN, SUM_OF_THREE
from study_protocol.wire.signing import MAX_SKEW_SECONDS


def check_parameters(
    signed: SignedParameters, plan: SessionPlan, party: Party, now: int, *, joined: bool = False
) -> SessionParameters:
    """The parameters, if this hospital may join their session.

    plan    known from the signed assignment, the settings, the ledger that was seen and this hospital's own task, not
            from the session
    joined  this hospital has joined it before: also one of an earlier version is gone on with

    Raises:
        ParametersRefused: unsigned, of another version, malformed, unsound, below the floors, expired, or not what had
            to be signed. A contradiction of the coordinator's other words carries a proof.
    """
    ph = transcript.parameters_hash(signed.parameters)
    # Nothing in the bytes is read before they are known to be the coordinator's.
    if not transcript.is_signed(party.coordinator, signed.signature, transcript.parameters_statement(ph)):
        raise ParametersRefused("unsigned-parameters", "the coordinator's signature on the parameters is not valid")
    try:
        parameters = SessionParameters.from_bytes(signed.parameters)
        if parameters.version == 1 and not joined:
            old = "the coordinator's version binds secure sums to too little: it has to be brought up to date"
            raise ParametersRefused("other-version", old)
        require_sound(parameters)
        if now > parameters.expires:
            raise ParametersRefused("session-expired", "the session has expired")
        _check_due(parameters, plan.due(parameters))
        _check_floors(parameters, party)
        # Else its secrets would live for as long as the coordinator likes.
        if plan.start(parameters) > now + MAX_SKEW_SECONDS:
            raise ParametersRefused("future-session", "the session begins later than now, by this machine's clock")
    except ParameterFault as fault:
        # Another version is nobody's lie. Whatever else is signed and unsound is.
        proof = None if fault.code == "other-version" else {"rule": fault.code}
        raise ParametersRefused(fault.code, str(fault), proof) from fault
    return parameters


_MISMATCHES = {
    "study": ("wrong-round", "the session belongs to another study"),
    "round": ("wrong-round", "the session belongs to another round, not to this one"),
    "settings": ("wrong-settings", "the session names other settings than this hospital joined under"),
    "ledger_entries": ("wrong-ledger", "the session names another entry as the round's charge than the ledger shown"),
    "ledger_sha256": ("wrong-ledger", "the session names another ledger than the one shown to this hospital"),
    "query": ("wrong-query", "the session names another question than the assignment"),
    "model": ("wrong-model", "the session names another model than the assignment"),
    "roster": ("wrong-roster", "the session names another roster than the pinned one"),
    "vectors": ("wrong-vectors", "the session sums other vectors, lengths or ranges than expected"),
}


def _check_due(parameters: SessionParameters, due: SessionParameters) -> None:
    for name in SessionParameters.model_fields:
        if getattr(parameters, name) != getattr(due, name):
            refusal = ("wrong-parameters", f"{name} is not what follows from the study's settings")
            raise ParametersRefused(*_MISMATCHES.get(name, refusal), proof={"expected": due.model_dump(mode="json")})


def _check_floors(parameters: SessionParameters, party: Party) -> None:
    floors = party.floors
    if parameters.clients == 3 and not floors.allow_three:
        detail = "sums of three hospitals are not allowed here: allow_three in policy.toml, or one more hospital"
        raise ParametersRefused(SUM_OF_THREE, detail)
    if parameters.clients > len(party.roster):
        raise ParametersRefused("too-many-clients", "the session plans more clients than the roster has")
    if parameters.colluders < floors.colluders:
        detail = f"colluders: {parameters.colluders} in the study, least_colluders asks for {floors.colluders}"
        raise ParametersRefused("few-colluders", detail)
    if parameters.min_survivors < floors.min_survivors:
        detail = f"sums of {parameters.min_survivors} would be opened, this hospital asks {floors.min_survivors}"
        raise ParametersRefused("low-survivors", detail)


def check_cohort(
    entries: Sequence[KeysMessage], current: Current, party: Party, previous_cohort: frozenset[str] | None
) -> None:
    """U1: sorted, of allowed size, everyone on the roster and signed for this session, no key twice, ours unaltered.

    Raises:
        CohortRefused: with the first of these that fails. With a proof where a key is not for this session: its owner
            was shown another one.
    """
    proof = {"keys": [entry.model_dump(mode="json") for entry in entries]}
    _require_sorted(entries, "unsorted-cohort", CohortRefused)
    min_clients, max_clients = current.parameters.min_clients, current.parameters.clients
    if not min_clients <= len(entries) <= max_clients:
        raise CohortRefused(
            "cohort-size", f"{len(entries)} clients have keys, the session allows {min_clients} to {max_clients}"
        )
    for entry in entries:
        _require_own_keys(entry, current, party, proof)
    if current.session.keys not in entries:
        raise CohortRefused("own-key-altered", "this hospital's own keys are missing or altered", proof)
    keys = set[bytes]().union(*((entry.share_key, entry.mask_key) for entry in entries))
    if len(keys) != 2 * len(entries):
        raise CohortRefused("repeated-key", "a masking key occurs twice")
    names = frozenset(entry.client for entry in entries)
    if previous_cohort is not None and len(names ^ previous_cohort) == 1:
        detail = "the cohort differs from the last one by one client, whose value the two sums show"
        raise CohortRefused("neighbouring-cohort", detail)


def _require_own_keys(entry: KeysMessage, current: Current, party: Party, proof: Mapping[str, Any]) -> None:
    identity = party.roster.get(entry.client)
    if identity is None:
        raise CohortRefused("outside-roster", f"{entry.client} is not on the pinned roster", proof)
    statement = transcript.keys_statement(current.ph, entry.client, entry.share_key, entry.mask_key)
    if not transcript.is_signed(identity, entry.signature, statement):
        detail = (
            f"the masking keys of {entry.client} are not signed for this session: it was shown other settings, "
            "another ledger, question, model or roster, or other deadlines"
        )
        raise CohortRefused("unsigned-key", detail, proof)


def check_survivors(entries: Sequence[Manifest], current: Current) -> None:
    """Check U3: sorted, within U2, large enough, ourselves in it unaltered, and every member's manifest signed over the
    same U2. No colluders among them can split the sum of the others, and every neighbourhood can open what it has to.

    Raises:
        SurvivorsRefused: with the first of these that fails.
    """
    _require_sorted(entries, "unsorted-survivors", SurvivorsRefused)
    parameters = current.parameters
    if len(entries) < parameters.min_survivors:
        detail = f"{len(entries)} clients survive. A sum needs at least {parameters.min_survivors}"
        raise SurvivorsRefused("few-survivors", detail)
    if current.session.manifest not in entries:
        raise SurvivorsRefused("own-vector-altered", "this hospital's own vectors are missing or altered")
    names, sharers = {spec.name for spec in parameters.vectors}, frozenset(current.session.sharers)
    for entry in entries:
        identity = current.identity(entry.client)
        if entry.client not in sharers or identity is None:
            raise SurvivorsRefused("outside-cohort", f"{entry.client} did not share its secrets with this hospital")
        statement = current.masked_statement(entry.client, entry.digests)
        if set(entry.digests) != names or not transcript.is_signed(identity, entry.signature, statement):
            raise SurvivorsRefused("unsigned-vector", f"the vectors of {entry.client} are not signed for this session")
    _require_openable([entry.client for entry in entries], sharers, current)


def _require_openable(names: Sequence[str], sharers: frozenset[str], current: Current) -> None:
    graph, parameters = current.graph, current.parameters
    survivors = graph.mask(names)
    if not graph.is_tied(survivors, parameters.colluders):
        detail = f"so many neighbours are lost that {parameters.colluders} colluders could split the sum into parts"
        raise SurvivorsRefused("sparse-survivors", detail)
    if not graph.can_open(graph.mask(sharers), survivors, parameters.threshold):
        detail = f"somewhere fewer than {parameters.threshold} are left of a client and its neighbours"
        raise SurvivorsRefused("sparse-survivors", detail)


def shows_totals(vectors: Iterable[VectorSpec]) -> bool:
    """Whether sums of two rounds over almost the same clients would show one client's value.

    Costs are summed as they are, and a hospital's number of records is the same in every round. Updates carry noise or
    are new in every round, histograms are of one round, and a maximum is no sum.
    """
    return any(spec.encoding == "costs" for spec in vectors)


_NAMED_AT_MOST = 3


def check_may_be_summed_again(opened: Opened | None, cohort: Iterable[str]) -> None:
    """Whether the survivors of this cohort can be those whose updates from the same model were summed before.

    opened  that sum, or None if there was none

    Raises:
        CohortRefused: one of them is not in it.
    """
    if opened is not None and (missing := frozenset(opened.survivors) - frozenset(cohort)):
        raise CohortRefused(SAME_MODEL_AGAIN, _same_model(opened, missing, "not here now"))


def check_is_summed_again(opened: Opened | None, survivors: Iterable[str]) -> None:
    """Whether these survivors are those whose updates from the same model were summed before.

    opened  that sum, or None if there was none

    Raises:
        SurvivorsRefused: they are not.
    """
    if opened is not None and (difference := frozenset(opened.survivors) ^ frozenset(survivors)):
        raise SurvivorsRefused(SAME_MODEL_AGAIN, _same_model(opened, difference, "in one of the two sums only"))


def _same_model(opened: Opened, hospitals: frozenset[str], place: str) -> str:
    names = sorted(hospitals)[:_NAMED_AT_MOST]
    more = "" if len(hospitals) == len(names) else f" and {len(hospitals) - len(names)} more"
    return (
        f"round {opened.round} opened a sum of updates from this very model over other hospitals ({', '.join(names)}"
        f"{more}: {place}). Sums over different sets show single updates, so no other set is opened. If a hospital has "
        "left for good, its lead has to end the study (wardround study stop)"
    )


def check_consistency(entries: Sequence[ConsistencyMessage], current: Current) -> None:
    """A quorum of distinct survivors signed the very survivor set that this hospital was shown.

    Raises:
        SurvivorsRefused: too few valid signatures.
    """
    names = {entry.client for entry in current.session.survivors}
    statement, quorum = current.consistency_statement, current.parameters.quorum
    valid: set[str] = set()
    for entry in entries:
        # Enough. Every further signature costs its check.
        if len(valid) == quorum:
            return
        identity = current.identity(entry.client) if entry.client in names else None
        if identity is not None and transcript.is_signed(identity, entry.signature, statement):
            valid.add(entry.client)
    if len(valid) < quorum:
        detail = f"{len(valid)} survivors signed this survivor set. A sum needs {quorum} signatures"
        raise SurvivorsRefused("few-signatures", detail)


def _require_sorted(
    entries: Sequence[KeysMessage] | Sequence[Manifest],
    code: str,
    refusal: type[CohortRefused] | type[SurvivorsRefused],
) -> None:
    # Strictly: the transcript hashes the list, and nobody may stand in it twice.
    if any(a.client >= b.client for a, b in pairwise(entries)):
        raise refusal(code, "the list is not in the order of the client names, each once")
