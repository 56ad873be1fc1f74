"""What every accountant must satisfy, whatever it accounts for."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from accounting import InvalidArgument
from tests.accounting.conformance.accountants import ACCOUNTING_SAMPLE, BAYESIAN, DELTA, SUBJECTS, Event, Subject

EVENTS = [Event(), Event(noise=4.0), Event(rate=0.5, scale=0.7), Event(noise=1.5, rate=0.05)]
one_event = pytest.mark.parametrize(
    "event", [pytest.param(e, marks=pytest.mark.slow if e in EVENTS[1:3] else ()) for e in EVENTS], ids=str
)
# Which arguments are refused depends on neither estimator nor adversary: make test asks the first and the last.
REPEATED = [subject.name for subject in BAYESIAN[1:-1]]
every = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
monotone = pytest.mark.parametrize(
    # Student t and Bernstein may fall when single values rise; these laws are not theirs.
    "subject",
    [s for s in SUBJECTS if "student" not in s.name and "bernstein" not in s.name],
    ids=lambda subject: subject.name,
)


def _short(value: object) -> str:
    """A value as a test's name shows it: a long list of equals as its first element, times its length."""
    if isinstance(value, list) and len(value) > 2 and all(each is value[0] for each in value):
        return f"[{value[0]!r}]*{len(value)}"
    return repr(value)


def spent(subject: Subject, *events: Event, count: int = 1) -> float:
    account = subject.make()
    for event in events:
        subject.charge(account, event, count)
    return subject.epsilon(account)


@every
def test_nothing_is_spent_before_the_first_step(subject: Subject) -> None:
    assert subject.epsilon(subject.make()) == 0.0


@every
@one_event
def test_every_step_costs_something(subject: Subject, event: Event) -> None:
    assert 0 < spent(subject, event) < spent(subject, event, count=5)


@every
def test_what_is_never_sampled_costs_nothing(subject: Subject) -> None:
    assert spent(subject, Event(rate=0.0), count=3) == 0.0


@every
@one_event
def test_n_times_at_once_is_n_times_one(subject: Subject, event: Event) -> None:
    once, singly = subject.make(), subject.make()
    subject.charge(once, event, 6)
    for _ in range(6):
        subject.charge(singly, event, 1)
    assert subject.epsilon(once) == pytest.approx(subject.epsilon(singly), rel=1e-9)


@pytest.mark.slow_cases("averaged", "holder-betting-adaptive", "holder-betting-path")
@every
def test_the_order_of_steps_does_not_matter(subject: Subject) -> None:
    assert spent(subject, *EVENTS, count=6) == pytest.approx(spent(subject, *EVENTS[::-1], count=6), rel=1e-6)


@pytest.mark.slow_cases("averaged")
@monotone
def test_less_noise_more_sampling_larger_norms_more_steps_cost_more(subject: Subject) -> None:
    base = spent(subject, Event(), count=4)
    assert spent(subject, Event(noise=1.8), count=4) > base
    assert spent(subject, Event(rate=0.25), count=4) > base
    assert spent(subject, Event(scale=1.1), count=4) > base
    assert spent(subject, Event(), count=5) > base


@every
def test_asking_changes_nothing(subject: Subject) -> None:
    account = subject.make()
    subject.charge(account, Event(), 3)
    before = copy.deepcopy(subject.snapshot(account))
    assert subject.epsilon(account) == subject.epsilon(account)
    if subject.certificate is not None:
        subject.certificate(account)
    assert subject.snapshot(account) == before


@pytest.mark.parametrize(
    ("subject", "name", "value"),
    [
        pytest.param(
            s,
            name,
            value,
            id=f"{s.name}-{name}={_short(value)}",
            marks=pytest.mark.slow if s.name in REPEATED else (),
        )
        for s in SUBJECTS
        for name, value in s.bad
    ],
)
def test_bad_input_is_named_and_changes_nothing(subject: Subject, name: str, value: object) -> None:
    account = subject.make()
    subject.charge(account, Event(), 2)
    before = copy.deepcopy(subject.snapshot(account))
    with pytest.raises(InvalidArgument) as refused:
        getattr(account, subject.act)(**(subject.good | {name: value}))
    # A clip norm below the distances is reported as distances above the clip norm.
    assert refused.value.argument in {name, "distances"} if name == "max_distance" else refused.value.argument == name
    assert subject.snapshot(account) == before


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.certificate is not None], ids=lambda s: s.name)
def test_the_certificate_says_the_same_and_is_json(subject: Subject) -> None:
    account = subject.make()
    subject.charge(account, Event(), 3)
    guarantee = subject.certificate(account)  # type: ignore[misc]
    assert (guarantee.epsilon, guarantee.delta) == (subject.epsilon(account), DELTA)
    assert guarantee.assumption.strip()
    again = type(guarantee).from_dict(json.loads(json.dumps(guarantee.to_dict(), allow_nan=False)))
    assert again == guarantee


@pytest.mark.parametrize("subject", BAYESIAN, ids=lambda subject: subject.name)
def test_the_bayesian_number_never_reads_above_the_classical_one(subject: Subject) -> None:
    account = subject.make()
    for event in EVENTS:
        subject.charge(account, event, 2)
    worst = subject.make()
    for event in EVENTS:
        for _ in range(2):
            worst.step(None, noise_std=event.noise, sampling_rate=event.rate, max_distance=event.scale)
    assert (account.log_moments() <= worst.log_moments() * (1 + 1e-12)).all()


EDGES = np.linspace(0, 1, 9)[1:]
COUNTS = np.bincount(np.searchsorted(EDGES, ACCOUNTING_SAMPLE), minlength=8)
KINDS: dict[str, dict[str, Any]] = {
    "accounting_sample": {"distances": ACCOUNTING_SAMPLE},
    "histogram": {"distances": EDGES, "counts": COUNTS},
    "noised histogram": {"distances": EDGES, "counts": COUNTS, "count_noise": 2.0, "sample_size": 80},
    "unmeasured": {},
}


@pytest.mark.parametrize("subject", [s for s in BAYESIAN if "holder" in s.name], ids=lambda subject: subject.name)
def test_every_kind_of_event_adds_up_in_any_order(subject: Subject) -> None:
    free = "betting" in subject.name or "band" in subject.name
    kinds = [KINDS[name] for name in KINDS if free or name != "noised histogram"]
    plan = {"noise_std": 2.0, "sampling_rate": 0.2, "max_distance": 1.0}
    alone = []
    for kind in kinds:
        account = subject.make()
        account.step(**kind, **plan)
        alone.append(account.log_moments())
        for _ in range(4):
            account.step(**kind, **plan)
        assert account.log_moments() == pytest.approx(5 * alone[-1], rel=1e-9)
    totals = []
    for order in (kinds, kinds[::-1]):
        account = subject.make()
        for kind in order:
            account.step(**kind, **plan)
        totals.append(account.log_moments())
    assert totals[0] == pytest.approx(totals[1], rel=1e-9)
    # Half a ledger at 2λ+1 is capped as a sum at λ, which only lowers it.
    assert (totals[0] >= np.max(alone, axis=0)).all()
    if subject.name.endswith("path"):
        assert totals[0] == pytest.approx(sum(alone), rel=1e-9)
