"""The limit of a ledger of runs, the charges in it, and their ε. Pure, so that a ledger can be computed again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, get_args

from accounting.accountants.classical import ClassicalAccountant
from accounting.budget.ledger import GENESIS, Entry
from accounting.errors import AccountingError, InvalidArgument
from accounting.mechanisms.conversion import sampling_slack
from accounting.mechanisms.gaussian_squares import epsilon_of_squares, release_slack
from accounting.values import check_choice, check_count, check_delta, check_order, check_positive, check_rate
from client_sdk.errors import LedgerDamaged
from client_sdk.guard.charges import Charge, OwnLimit, squares_spent
from client_sdk.guard.limit_terms import LimitRule
from study_protocol.study.limits import LevelName

# Stands where a run's name does. No run has a name with a slash.
LIMIT = "/limit"
_VERSION = 1
# Of an ε that rises with what comes off δ for it: two or three are enough, or there is none.
_TRIES = 32


def limit_of(epsilon: float, delta: float, level: LevelName, rule: LimitRule, order: float | None) -> OwnLimit:
    """Return a checked limit. Raises InvalidArgument: a value is out of its range, or belongs to the other rule."""
    check_choice("level", level, get_args(LevelName))
    check_choice("rule", rule, get_args(LimitRule))
    epsilon, delta = check_positive("epsilon", epsilon), check_delta(delta)
    if not release_slack(epsilon, 1) < delta / 2:
        raise InvalidArgument(
            "epsilon", f"{epsilon:g} is so large that discrete noise alone may use up delta: below 30"
        )
    if rule == "gaussian":
        if order is not None:
            raise InvalidArgument("order", 'belongs to rule "renyi"')
        return OwnLimit(level, epsilon, delta, 0.0, rule)
    # The best order where Gaussian noise without sampling reaches (ε, δ).
    fixed = 2 * math.log(1 / delta) / epsilon if order is None else order
    return OwnLimit(level, epsilon, delta, check_order("order", fixed), rule)


def body_of(limit: OwnLimit) -> dict[str, Any]:
    """Return the body of the first entry."""
    return {"version": _VERSION, **asdict(limit)}


def limit_in(entries: Sequence[Entry]) -> OwnLimit:
    """Return the limit in the first entry. Raises LedgerDamaged: there is none, or it is of a later version."""
    body: dict[str, Any] = dict(entries[0].body) if entries else {}
    values = {field.name: body.get(field.name) for field in fields(OwnLimit)}
    if not entries or entries[0].kind != "opened" or set(body) != {"study", "version", *values}:
        raise LedgerDamaged("this is not a ledger of runs: its first entry holds no limit of one")
    if body["version"] != _VERSION:
        raise LedgerDamaged("this ledger of runs is of a later version: install the Wardround that wrote it")
    try:
        limit = limit_of(body["epsilon"], body["delta"], body["level"], body["rule"], body["order"] or None)
    except AccountingError as error:
        raise LedgerDamaged(f"the limit in the first entry is none: {error}") from error
    # JSON has 1 and 1.0, True and 1: only the one form that is written is the limit.
    if asdict(limit) != values:
        raise LedgerDamaged("the limit in the first entry is none: a number has another form")
    return limit


def steps_in(entries: Iterable[Entry], limit: OwnLimit) -> Counter[Charge]:
    """Return how many steps of each kind were charged, settled or not. Raises LedgerDamaged: a charge is none."""
    steps = Counter[Charge]()
    for entry in entries:
        if entry.kind != "reserved":
            continue
        charge = Charge.from_body(entry.body)
        try:
            checked = charge_of(limit.level, charge.noise_multiplier, charge.sampling_rate, charge.steps)
        except AccountingError as error:
            raise LedgerDamaged(f"entry {entry.sequence} charges what is no release: {error}") from error
        if checked != charge:
            raise LedgerDamaged(f"entry {entry.sequence} charges another level, or what is no release")
        steps += steps_of(charge)
    return steps


def steps_of(charge: Charge) -> Counter[Charge]:
    """Return the steps of one charge, by the kind of a single step."""
    return Counter({replace(charge, steps=1): charge.steps})


def charge_of(level: LevelName, noise_multiplier: float, sampling_rate: float = 1.0, steps: int = 1) -> Charge:
    """Return the cost of Gaussian steps. Raises InvalidArgument: a number is out of its range."""
    noise = check_positive("noise_multiplier", noise_multiplier)
    return Charge(level, noise, check_rate("sampling_rate", sampling_rate), check_count("steps", steps))


def epsilon_of(steps: Mapping[Charge, int], limit: OwnLimit, delta: float | None = None) -> float:
    """Return ε of the steps by the limit's rule, at `delta` or the limit's. Rounded up, ∞ if no ε can be shown.

    What discrete noise and its sampler may add comes off δ first, as of the limit's ε, or of a larger one
    (`release_slack`).
    """
    if not steps:
        return 0.0
    target = limit.delta if delta is None else check_delta(delta)
    largest = limit.epsilon
    for _ in range(_TRIES):
        spendable = target - _slack(limit, largest, steps)
        if not spendable > 0:
            return math.inf
        epsilon = _epsilon_at(steps, limit, spendable)
        # What came off is enough for every ε up to the one that it was computed for.
        if epsilon <= largest or math.isinf(epsilon):
            return epsilon
        largest = epsilon * (1 + 2.0**-20)
    return math.inf


def _epsilon_at(steps: Mapping[Charge, int], limit: OwnLimit, spendable: float) -> float:
    """Return ε of continuous noise at a δ."""
    if limit.rule == "renyi":
        return _account(steps, replace(limit, delta=spendable)).epsilon()
    squares = squares_of(steps, limit)
    return epsilon_of_squares(squares, spendable) if math.isfinite(squares) else math.inf


def delta_of(steps: Mapping[Charge, int], limit: OwnLimit, epsilon: float) -> float:
    """Return δ of the steps at an ε ≥ 0, rounded up. Raises InvalidArgument: ε is no such number."""
    return min(1.0, _account(steps, limit).delta_for(epsilon) + _slack(limit, epsilon, steps))


def squares_of(steps: Mapping[Charge, int], limit: OwnLimit) -> float:
    """Return Σ 1/σ² of the steps, rounded up."""
    return squares_spent([replace(charge, steps=count) for charge, count in steps.items()], limit.level)


def _account(steps: Mapping[Charge, int], limit: OwnLimit) -> ClassicalAccountant:
    if limit.rule == "gaussian":
        account = ClassicalAccountant(delta=limit.delta)
        if steps:
            # One release with the same Σ 1/σ²: all of them together are as private as it.
            noise = 1 / math.sqrt(squares_of(steps, limit)) * (1 - 2.0**-50)
            account.step(noise_multiplier=noise, sampling_rate=1.0)
        return account
    account = ClassicalAccountant(delta=limit.delta, method="rdp", order=limit.order)
    for charge, count in steps.items():
        account.step(noise_multiplier=charge.noise_multiplier, sampling_rate=charge.sampling_rate, count=count)
    return account


def _slack(limit: OwnLimit, epsilon: float, steps: Mapping[Charge, int]) -> float:
    count = sum(steps.values())
    return release_slack(epsilon, count) if limit.rule == "gaussian" else sampling_slack(epsilon, count)


def head_of(entries: Sequence[Entry]) -> tuple[int, str]:
    """Return the number and the hash of the last entry, or (0, 64 zeros) without one."""
    return (entries[-1].sequence, entries[-1].sha256) if entries else (0, GENESIS)


def in_words(limit: OwnLimit) -> str:
    """Return a limit for a message."""
    order = f" at order {limit.order:g}" if limit.order else ""
    return f"ε = {limit.epsilon:g}, δ = {limit.delta:g} at level {limit.level}, rule {limit.rule}{order}"
