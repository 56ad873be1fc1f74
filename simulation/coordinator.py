"""The coordinator's side of a simulated study: budget, coins, central noise, releases. Its decisions are the service's.

Every client that is asked answers. Rounds fail by coins alone, or because a sum is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accounting.budget.budget import Budget, StopReason
from accounting.budget.ledger import Kind
from accounting.budget.statements import displayed_epsilon
from accounting.plan.report import RoundReport, moments_in, report_to_dict
from client_sdk.errors import WardroundError
from server.domain.admission import Findings, coordinates
from server.domain.bounds import anchor, has_anchor, longest_update
from server.domain.clip_norm import next_clip_norm
from server.domain.optimiser import begin, released, restored
from server.domain.release import NotFinite, OpenedSum, noised_sum
from server.domain.rounds import (
    ANY_REASON,
    Abandon,
    Attendance,
    Collected,
    SecureSumEnd,
    Values,
    abandonment,
    entry_of,
    no_session,
    pauses,
    sample,
    settled,
    shows_reports,
)
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins, Randomness
from study_protocol.secure_sum.messages import ParameterFault
from study_protocol.secure_sum.parameters import UPDATE, SessionPlan
from study_protocol.secure_sum.vectors import EncodingError, RingVector, VectorSpec, aligned, decode
from study_protocol.study.plan_of import plan_of
from study_protocol.study.reasons import in_words
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays, ReadableTensors, gather_tensors, read
from study_protocol.wire.tensors import Array, spec_of

# A session's parameters name them. Nothing that is computed depends on them.
_STUDY, _NOBODY = "simulation", "0" * 64


class StudyPaused(WardroundError):
    """Rounds fail one after the other: in service the study would wait for a person."""


@dataclass(frozen=True)
class LedgerEvent:
    """One entry of the ledger, without how the study stood."""

    kind: Kind
    round: int | None
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Opening:
    """A round that has begun. vectors: what is summed under masks, none in the clear."""

    round: int
    drawn: tuple[int, ...]
    vectors: tuple[VectorSpec, ...]


@dataclass(frozen=True, repr=False)
class RoundAnswers:
    """The results of a round's clients. updates, findings: in the clear, in order of their names. sums: total data
    words."""

    updates: Sequence[ReadableTensors]
    findings: tuple[Findings, ...]
    sums: Mapping[str, RingVector]


class SimulatedCoordinator:
    """One study from its first reservation to its end.

    names    of the clients, ascending
    weights  parameter name -> float32, released last
    version  by which round, 0 before the first release
    clip_norm  of the rounds that start from them, where the study's is adaptive
    reason   why the round that was closed last failed. None: it was released
    """

    def __init__(
        self, settings: StudySettings, names: Sequence[str], weights: Mapping[str, Array], randomness: Randomness
    ) -> None:
        self.settings, self.names = settings, tuple(names)
        self.weights, self.version = weights, 0
        self.clip_norm = None if settings.privacy.adaptive_clip is None else settings.privacy.clip_norm
        self.reason: str | None = None
        self.total_records: float | None = None
        self._spec = spec_of(weights)
        self._before: tuple[int, Mapping[str, Array]] | None = None
        self._state = begin()
        self._abandoned: list[str] = []
        self._withheld: list[dict[str, Any] | None] = []
        self._releases = 0
        self._noise, self._coins = DiscreteGaussianNoise(randomness), AddressedCoins(randomness)
        self.budget = Budget.open(plan_of(settings))
        self.events: list[LedgerEvent] = []

    # -- a round

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no further round of training may begin."""
        return self.budget.authorise().reason

    @property
    def previous(self) -> Mapping[str, Array] | None:
        """The weights of the version before the newest one, if that round released any."""
        has_previous = self._before is not None and self._before[0] == self.version - 1
        return self._before[1] if has_previous and self._before is not None else None

    @property
    def attempt(self) -> int | None:
        """Return the place of the round under way in the noise schedule, or None without one."""
        return None if self.budget.plan.noise_schedule is None else self.budget.attempts

    @property
    def _in_round(self) -> StudySettings:
        """The settings as the round under way sees them."""
        return self.settings.at_clip_norm(self.clip_norm).at_attempt(self.attempt)

    @property
    def longest(self) -> float:
        """L2 norm that a client's update in the clear may have in the round under way."""
        return self._longest(self.budget.last_round, self.previous, clients=1)

    def begin(self) -> Opening | None:
        """Reserve the next round and draw its clients. None: it ended at once, for want of them.

        Raises:
            StudyPaused: too many rounds in a row failed.
        """
        self._require_going_on()
        round = self.budget.last_round + 1
        self._record("reserved", round, {})
        heads = partial(self._coins.heads, round_number=round)
        rate = self.settings.privacy.client_sampling_rate
        sampled_names = set(sample(self.names, rate, heads))
        places = tuple(place for place, name in enumerate(self.names) if name in sampled_names)
        try:
            return Opening(round, places, self._vectors(round, len(places)))
        except ParameterFault as fault:
            self._end(round, no_session(fault, len(places), members=len(self.names)))
            return None

    def close(self, opening: Opening, answers: RoundAnswers) -> None:
        """Charge the round, then release its model. Or end it without one."""
        collected = self._collected(opening, answers.findings)
        ending = abandonment(self.settings.schedule.min_clients, collected, lost=False)
        if ending is not None:
            self._end(opening.round, ending)
            return
        sums = dict(_readable(opening.vectors, answers.sums))
        publishes = self.budget.plan.publishes(opening.round)
        report = settled(self.settings, collected, sums, publishes=publishes)
        kind, body = entry_of(report, self.settings)
        self._record(kind, opening.round, body)
        self._withheld.append(report_to_dict(report.report))
        self._learn_records(report.report)
        try:
            self._release(opening, answers)
        except NotFinite as error:
            self._came_to_nothing(error.reason)

    def finish(self, reason: StopReason) -> None:
        """No round after this."""
        hidden = self.settings.privacy.bayesian is not None and not shows_reports(self.settings)
        self._record("finished", None, {"reason": reason, "report": list(self._withheld) if hidden else None})

    def spent(self) -> tuple[float | None, ...]:
        """Return ε of every limit by now, or None where no finite one covers it."""
        epsilons = (displayed_epsilon(self.budget.accounts, account) for account in self.budget.accounts)
        return tuple(value if math.isfinite(value) else None for value in epsilons)

    # -- evaluations that the study asks by itself

    def evaluate(self, *, last: bool = False) -> None:
        """Charge the scheduled question about the newest model, if it is due and still fits.

        Every hospital consents at once. Its answer is not simulated: the test records say more.
        """
        evaluation = self.settings.evaluation
        if evaluation is None or self.version == 0 or not (last or evaluation.due(self._releases)):
            return
        document = evaluation.document(self.version)
        if document is None or any(event.body.get("query") == document.digest() for event in self.events):
            return
        cost, number = document.cost(), self.budget.last_round + 1
        if self.budget.authorise_query(cost).is_allowed:
            self._record("asked", number, {"query": document.digest(), "cost": cost.to_dict()})
            self._record("settled", number, {"report": None})

    # -- inside

    def _vectors(self, round_number: int, client_count: int) -> tuple[VectorSpec, ...]:
        if self.settings.privacy.masking is None:
            return ()
        session_names = {"study": _STUDY, "roster": _NOBODY, "model": _NOBODY}
        plan = SessionPlan.of(
            self.settings,
            self._spec,
            round_number=round_number,
            ledger=(round_number, _NOBODY),
            clip_norm=self.clip_norm,
            attempt=self.attempt,
            **session_names,
        )
        return plan.parameters(client_count, session=bytes(32), now=0.0).vectors

    def _collected(self, opening: Opening, findings: tuple[Findings, ...]) -> Collected:
        masking = self.settings.privacy.masking
        participants = frozenset(self.names[place] for place in opening.drawn)
        nobody = frozenset[str]()
        masked = nobody if masking is None else participants
        attendance = Attendance(
            participants, nobody, nobody, participants, survivors=masked, enrolled=frozenset(self.names)
        )
        end = None if masking is None else SecureSumEnd(None, opened=True, masks_updates=masking.mask_updates)
        return Collected(attendance, findings, end, sampled=len(opening.drawn))

    def _release(self, opening: Opening, answers: RoundAnswers) -> None:
        opened, updates = self._opened(opening, answers.sums), answers.updates
        draw = self._noise.of(opening.round)
        total = Arrays(noised_sum(self._in_round, self._spec, () if opened else updates, opened, draw))
        weights, state = released(self.settings, Arrays(self.weights), total, self._state)
        self.clip_norm = next_clip_norm(self.settings.at_attempt(self.attempt), self.clip_norm, total)
        self._before, self._state = (self.version, self.weights), state
        self.weights, self.version, self.reason = weights, opening.round, None
        self._releases += 1
        self._abandoned.clear()

    def _opened(self, opening: Opening, sums: Mapping[str, RingVector]) -> OpenedSum | None:
        spec = next((vector for vector in opening.vectors if vector.name == UPDATE), None)
        if spec is None:
            return None
        words, clients = sums[UPDATE], len(opening.drawn)
        longest = self._longest(opening.round, None, clients=clients)
        rounding = clients * 2.0 ** -(spec.scale_bits + 1) * math.sqrt(self._size)
        return OpenedSum(spec, lambda start, stop: words[start:stop], longest + rounding)

    def _longest(self, round_number: int, previous: Mapping[str, Array] | None, *, clients: int) -> float:
        before = None if previous is None else Arrays(previous)
        start = anchor(self.settings, Arrays(self.weights), before) if has_anchor(self.settings) else 0.0
        return longest_update(self._in_round, self._size, round_number, anchor=start, clients=clients)

    @property
    def _size(self) -> int:
        """Numbers in an update."""
        return coordinates(self.settings.privacy.sent(self._spec))

    def _learn_records(self, report: RoundReport | None) -> None:
        """As hospitals learn N: from the first entry that tells it."""
        moments = moments_in(report)
        if self.total_records is None and shows_reports(self.settings) and moments is not None:
            self.total_records = moments.records

    def _end(self, round_number: int, ending: Abandon) -> None:
        kind, body = entry_of(ending, self.settings)
        self._record(kind, round_number, body)
        if ending.charged:
            # As in service: its charge was the worst case, which no report lowers afterwards.
            self._withheld.append(None)
        self._came_to_nothing(ending.reason)

    def _came_to_nothing(self, reason: str) -> None:
        self.reason = reason
        self._abandoned.insert(0, reason)

    def _require_going_on(self) -> None:
        if pauses(self._abandoned[:ANY_REASON]):
            raise StudyPaused(
                f"{len(self._abandoned)} rounds in a row came to nothing, where the service would pause the study. The "
                f"last one: {in_words(self._abandoned[0])}"
            )

    def _record(self, kind: Kind, round_number: int | None, body: Mapping[str, Any]) -> None:
        self.budget.happen(len(self.events) + 2, kind, round_number, body)
        self.events.append(LedgerEvent(kind, round_number, body))

    # -- to go on after a kill

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """JSON and arrays from which `restore` continues exactly."""
        arrays = {f"weights/{name}": array for name, array in self.weights.items()}
        if self._before is not None:
            arrays |= {f"before/{name}": array for name, array in self._before[1].items()}
        if self._state.moments is not None:
            moments = self._state.moments
            arrays |= {
                f"optimiser/{name}": array for name, array in gather_tensors(moments.spec, read(moments)).items()
            }
        saved = {
            "version": self.version,
            "clip_norm": self.clip_norm,
            "before": None if self._before is None else self._before[0],
            "reason": self.reason,
            "total_records": self.total_records,
            "abandoned": self._abandoned,
            "withheld": self._withheld,
            "releases": self._releases,
            "budget": self.budget.state(),
            "events": [[event.kind, event.round, dict(event.body)] for event in self.events],
        }
        return saved, arrays

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Stand where `state` was taken, in the same study."""

        def saved_arrays(prefix: str) -> dict[str, Array]:
            return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

        self.weights, self.version = saved_arrays("weights/"), saved["version"]
        # An earlier version kept none: its studies had a constant one.
        self.clip_norm = saved.get("clip_norm")
        self._before = None if saved["before"] is None else (saved["before"], saved_arrays("before/"))
        optimiser = saved_arrays("optimiser/")
        self._state = restored(Arrays(optimiser)) if optimiser else begin()
        self.reason, self.total_records = saved["reason"], saved["total_records"]
        self._abandoned, self._withheld = list(saved["abandoned"]), list(saved["withheld"])
        self._releases = saved["releases"]
        self.budget = Budget.restore(self.budget.plan, saved["budget"])
        self.events = [LedgerEvent(kind, round, body) for kind, round, body in saved["events"]]


def _readable(specs: Iterable[VectorSpec], sums: Mapping[str, RingVector]) -> Iterator[tuple[str, Values]]:
    """Yield the decoded opened sums by name. A sum beyond its range is left out."""
    for spec in specs:
        if spec.name == UPDATE:
            continue
        # What follows the data on the wire is a check of the masks, which there are none of here.
        words = aligned(spec.words, spec.dtype)
        words[: spec.data_words] = sums[spec.name]
        try:
            yield spec.name, decode(spec, words)
        except EncodingError:
            continue
