"""Laws of what hospitals made, sent and were answered: their finished bytes, held against what was released.

`keeping_finished` notes every finished body beside a hospital's directory, where no fault of the run reaches it. The
sums are made here from these bytes alone; the released models and answers have to be what follows from them.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from accounting.budget.ledger import Entry
from client_sdk.api.client import Client
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.outbox import Outbox
from client_sdk.secure_sum.delivery import from_bytes
from server.domain.admission import mechanism
from server.domain.optimiser import begin, released
from server.domain.queries import answer_of, noise_of
from study_protocol.secure_sum.parameters import ANSWER, UPDATE, SessionPlan
from study_protocol.secure_sum.vectors import decode_signed
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundView
from study_protocol.study.queries import Query
from study_protocol.study.settings import StudySettings
from study_protocol.wire import tensors
from study_protocol.wire.tensor_files import Arrays
from tests.harness.law_broken import LawBroken


@contextmanager
def keeping_finished() -> Generator[None]:
    """Meanwhile every finished body of this process is noted beside the hospital's directory, too."""
    before = Outbox.put

    def put(outbox: Outbox, round: int, body: bytes) -> None:
        folder = _noted(outbox.folder.parents[1], outbox.folder.name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{round}.{hashlib.sha256(body).hexdigest()}").write_bytes(body)
        before(outbox, round, body)

    Outbox.put = put  # type: ignore[method-assign]
    try:
        yield
    finally:
        Outbox.put = before  # type: ignore[method-assign]


def _noted(home: Path, study: str) -> Path:
    return home.parent / f"{home.name}.finished" / study


def finished_bytes(home: Path, study: str, round_number: int) -> bytes | None:
    """The body of this round that the hospital's ledger names; None where it finished none.

    Raises:
        LawBroken: the ledger names a body that was never made.
    """
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        charged = ledger.charged_round(study, round_number)
    if charged is None or charged.sha256 is None:
        return None
    path = _noted(home, study) / f"{round_number}.{charged.sha256}"
    if not path.exists():
        raise LawBroken(f"the ledger in {home} names bytes of round {round_number} that were never made")
    return path.read_bytes()


def released_is_what_hospitals_made(
    operator: Client, study: str, views: Sequence[RoundView], homes: Mapping[str, Path], queries: Sequence[Query]
) -> None:
    """Every released model and every answer, computed again from the hospitals' own bytes."""
    settings = operator.study(study).settings
    version, models = 0, {0: load(operator.model(study, 0))} if isinstance(settings, StudySettings) else {}
    answers = {query.round: query for query in queries if query.answered is not None}
    for view in views:
        if view.state != "released":
            continue
        senders = sorted(client.client for client in view.clients or [] if client.state == "received")
        bodies = {name: finished_bytes(homes[name], study, view.round) for name in senders if name in homes}
        known_bodies = {name: body for name, body in bodies.items() if body is not None}
        if len(known_bodies) != len(senders):
            raise LawBroken(
                f"round {view.round} was released with {senders}, of whom only {sorted(known_bodies)} finished it"
            )
        if view.query is not None:
            if view.round not in answers:
                raise LawBroken(f"round {view.round} was released, and no query has its answer")
            _answer_follows(settings, answers[view.round], known_bodies)
            continue
        models[view.round] = load(operator.model(study, view.round))
        if isinstance(settings, StudySettings):
            _model_follows(settings, view.round, models[version], models[view.round], known_bodies)
        version = view.round


def _model_follows(
    settings: StudySettings,
    round_number: int,
    before: Mapping[str, tensors.Array],
    after: Mapping[str, tensors.Array],
    bodies: Mapping[str, bytes],
) -> None:
    """Plain optimiser. The coordinator alone knows its own noise: there the step must differ from one without."""
    spec: tensors.Spec = {name: (values.shape, str(values.dtype)) for name, values in before.items()}
    total = _total(settings, spec, round_number, bodies)
    expected = released(settings, Arrays(dict(before)), Arrays(total), begin())[0]
    noised = mechanism(settings, spec) is not None
    is_equal = all(np.array_equal(expected[name], after[name]) for name in after)
    if is_equal == noised:
        reason = "without the coordinator's noise" if noised else "another model than its updates make"
        raise LawBroken(f"round {round_number} released {reason}")


def _total(
    settings: StudySettings, spec: tensors.Spec, round_number: int, bodies: Mapping[str, bytes]
) -> dict[str, NDArray[np.float64]]:
    """(name -> the parameter's shape) the sum of updates, from words under masks or from numbers in the clear."""
    if settings.privacy.masking is None:
        parts = [load(body) for _, body in sorted(bodies.items())]
        return {
            name: np.sum([part[tensors.UPDATE + name].astype(np.float64) for part in parts], axis=0) for name in spec
        }
    digest = "0" * 64
    plan = SessionPlan.of(
        settings, spec, study="none", round_number=round_number, roster=digest, model=digest, ledger=(1, digest)
    )
    (vector,) = [candidate for candidate in plan.vectors(len(bodies)) if candidate.name == UPDATE]
    words = _summed([from_bytes(body)[0][UPDATE] for body in bodies.values()])
    flat, total, place = decode_signed(words, scale_bits=vector.scale_bits), {}, 0
    # In the order of `flatten`.
    for name in sorted(spec):
        size = math.prod(spec[name][0])
        total[name] = flat[place : place + size].reshape(spec[name][0])
        place += size
    return total


def _summed(vectors: Sequence[NDArray[np.unsignedinteger]]) -> NDArray[np.unsignedinteger]:
    """In the ring: it wraps."""
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total


def _answer_follows(settings: AnySettings, query: Query, bodies: Mapping[str, bytes]) -> None:
    answered = query.answered
    if answered is None:
        return
    cells, published = query.document.question.cells, answered.published
    if settings.privacy.masking is None:
        total = np.sum([load(body)[tensors.ANSWER_TENSOR] for body in bodies.values()], axis=0)
    else:
        words = _summed([from_bytes(body)[0][ANSWER] for body in bodies.values()])
        total = decode_signed(words[:cells], scale_bits=0)
    noise = noise_of(query.document, settings, len(bodies))
    below = 0 if settings.statistics is None else settings.statistics.suppress_below
    if (published.hospitals, published.noise, published.answer) != (
        len(bodies),
        noise,
        answer_of(query.document, noise, total.astype(np.float64), below),
    ):
        raise LawBroken(f"query {query.number} has another answer than the hospitals' sums make")


def no_question_is_answered_twice(
    entries: Sequence[Entry], queries: Sequence[Query], homes: Mapping[str, Path]
) -> None:
    """A digest is charged and answered once; what of it went wrong before was charged or cancelled, and says so."""
    digest_by_round = {entry.round: str(entry.body["query"]) for entry in entries if entry.kind == "asked"}
    answered: dict[str, int] = {}
    for entry in entries:
        digest = digest_by_round.get(entry.round)
        if entry.kind != "settled" or digest is None:
            continue
        if digest in answered:
            raise LawBroken(f"one question is settled in rounds {answered[digest]} and {entry.round}")
        answered[digest] = entry.round or 0
    for query in queries:
        if query.answered is not None and answered.get(query.sha256) != query.answered.published.round:
            raise LawBroken(f"query {query.number} is answered by a round that its ledger did not settle for it")
    # A hospital keeps what its approval is kept by: the question with the model that it is about.
    paid = {query.sha256: query.charged_digest for query in queries}
    for name, home in homes.items():
        _hospital_answered_once(name, home, {round: paid.get(digest) for round, digest in digest_by_round.items()})


def _hospital_answered_once(name: str, home: Path, digest_by_round: Mapping[int | None, str | None]) -> None:
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        reserved_entries = [entry for entry in ledger.entries if entry.kind == "reserved" and entry.body["asks"]]
        accepted_rounds = {departure.round for departure in ledger.departures() if departure.answer == "accepted"}
    rounds: dict[str, list[int]] = {}
    for entry in reserved_entries:
        if digest_by_round.get(entry.round) != entry.body["model_sha256"]:
            raise LawBroken(f"{name} paid in round {entry.round} for a question that was not asked in it")
        rounds.setdefault(str(entry.body["model_sha256"]), []).append(entry.round or 0)
    for times in rounds.values():
        if len(accepted_rounds.intersection(times)) > 1:
            raise LawBroken(f"{name} answered one question in rounds {times}")


def bytes_sent_again_are_the_same(sent: Mapping[str, Collection[str]], homes: Mapping[str, Path], study: str) -> None:
    """sent: address of an upload -> SHA-256 of every body that was ever sent to it."""
    for address, digests in sent.items():
        if f"/studies/{study}/" not in address:
            continue
        if len(digests) != 1:
            raise LawBroken(f"{len(digests)} different bodies were sent to {address}")
        parts = address.split("/")
        if "updates" in parts and parts[-1] in homes:
            body = finished_bytes(homes[parts[-1]], study, int(parts[parts.index("rounds") + 1]))
            # Under masks the update may be a part of the finished bytes; then only its sameness is known.
            whole = None if body is None else hashlib.sha256(body).hexdigest()
            if body is None or (whole not in digests and _travels_as_it_is(body)):
                raise LawBroken(f"{address} got bytes that the hospital's ledger does not name")


def _travels_as_it_is(body: bytes) -> bool:
    return not any(name.startswith("words/") for name in load(body))


def spellings(key: bytes) -> set[str]:
    """As logs could write it."""
    return {key.hex(), base64.urlsafe_b64encode(key).decode().rstrip("="), base64.b64encode(key).decode().rstrip("=")}


def no_secret_is_logged(logs: Iterable[Path], secrets: Collection[str]) -> None:
    """secrets: keys, tokens and patients' identifiers, as they could be written."""
    for log in logs:
        text = log.read_text(errors="replace") if log.exists() else ""
        for number, secret in enumerate(sorted(secrets)):
            if secret in text:
                raise LawBroken(f"{log.name} holds secret {number} of {len(secrets)}")
