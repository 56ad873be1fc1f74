"""The laws over every event: n-fold = n times, any order, monotone, unsampled is free; sums and peers as oracles."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest

from accounting import (
    ClassicalAccountant,
    ComposedEvent,
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    GaussianPair,
    InvalidArgument,
    LaplaceEvent,
    NothingEvent,
    PairEvent,
    PoissonSampledEvent,
    RandomisedResponse,
    Relation,
    SelfComposedEvent,
)

DELTA = 1e-6
# Odd, and enough that bounded losses need no orders above the common ones, which have up to a million terms.
STEPS = 9
ATOMS: dict[str, Event] = {
    "gaussian": GaussianEvent(3.0),
    "discrete": DiscreteGaussianEvent(30.0, sensitivity=10.0),
    "coarse discrete": DiscreteGaussianEvent(6.0, sensitivity=2.0),
    "laplace": LaplaceEvent(8.0),
    "randomised response": PairEvent(RandomisedResponse(0.6)),
    "gaussians of two widths": PairEvent(GaussianPair(0.2, 2.0, 2.1)),
}
EVENTS = ATOMS | {f"sampled {name}": PoissonSampledEvent(0.1, event) for name, event in ATOMS.items()}
KINDS: list[dict[str, object]] = [{"method": "pld"}, {"method": "rdp"}, {"method": "rdp", "order": 4.0}]
every = pytest.mark.parametrize("name", EVENTS)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
relations = pytest.mark.parametrize("relation", list(Relation), ids=str)


def spent(*events: Event, count: int = 1, delta: float = DELTA, **kind: object) -> float:
    account = ClassicalAccountant(delta=delta, **kind)  # type: ignore[arg-type]
    for event in events:
        account.compose(event, count)
    return account.epsilon()


@every
@kinds
def test_n_times_at_once_is_n_times_one(name: str, kind: dict[str, object]) -> None:
    event = EVENTS[name]
    at_once = spent(event, count=STEPS, **kind)
    assert at_once == spent(*[event] * STEPS, **kind)
    assert at_once == spent(SelfComposedEvent(event, STEPS), **kind)
    assert at_once == spent(ComposedEvent([event] * STEPS), **kind)
    part = SelfComposedEvent(event, STEPS // 2)
    assert at_once == spent(ComposedEvent([part, event]), part, **kind)
    assert 0 < at_once < spent(event, count=STEPS + 1, **kind)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_one_step_costs_less_than_many(name: str) -> None:
    assert 0 < spent(EVENTS[name], method="rdp") < spent(EVENTS[name], count=STEPS, method="rdp")


@kinds
def test_the_order_of_events_does_not_matter(kind: dict[str, object]) -> None:
    events = list(EVENTS.values())
    assert spent(*events, **kind) == pytest.approx(spent(*events[::-1], **kind), rel=1e-9)
    gaussians = [EVENTS[name] for name in ("gaussian", "sampled gaussian", "discrete")]
    assert spent(*gaussians, **kind) == pytest.approx(spent(*gaussians[::-1], **kind), rel=1e-6)


@pytest.mark.slow_cases("replace-one-sampled gaussian", "zero-out-sampled gaussians of two widths")
@every
@relations
def test_who_is_never_sampled_pays_nothing(name: str, relation: Relation) -> None:
    assert spent(PoissonSampledEvent(0.0, EVENTS[name]), count=1000, relation=relation) == 0.0
    costs = [
        spent(*events, count=STEPS, relation=relation) for events in ([EVENTS[name], NothingEvent()], [EVENTS[name]])
    ]
    assert costs[0] == costs[1]


@pytest.mark.slow_cases(
    "add-remove-pld-gaussians of two widths",
    "replace-one-pld-discrete",
    "replace-one-pld-gaussian",
    "replace-one-pld-laplace",
    "zero-out-pld-gaussians of two widths",
    "zero-out-rdp-gaussians of two widths",
)
@pytest.mark.parametrize("name", ATOMS)
@kinds
@relations
def test_more_sampling_and_more_steps_cost_more(name: str, kind: dict[str, object], relation: Relation) -> None:
    atom = ATOMS[name]
    costs = [spent(PoissonSampledEvent(rate, atom), count=9, relation=relation, **kind) for rate in (0.05, 0.3, 1.0)]
    assert costs[0] < costs[1] < costs[2] * (1 + 1e-9)
    assert costs[2] == spent(atom, count=9, relation=relation, **kind)
    assert spent(PoissonSampledEvent(0.3, atom), count=10, relation=relation, **kind) > costs[1]


@pytest.mark.quick("add-remove-1.0", "replace-one-0.1", "replace-one-1.0", "zero-out-1.0")
@pytest.mark.parametrize("rate", [0.1, 1.0])
@relations
def test_more_noise_costs_less(rate: float, relation: Relation) -> None:
    for kind in (GaussianEvent, LaplaceEvent):
        loud, quiet = (spent(PoissonSampledEvent(rate, kind(noise)), relation=relation) for noise in (9.0, 3.0))
        assert loud < quiet
    few, many = (
        spent(PoissonSampledEvent(rate, DiscreteGaussianEvent(20.0, size)), relation=relation) for size in (1, 4)
    )
    assert few < many


@pytest.mark.parametrize("name", ATOMS)
@kinds
def test_replacing_costs_at_least_as_much_as_adding(name: str, kind: dict[str, object]) -> None:
    """Adding is one half of replacing: nothing may be cheaper under the stronger relation."""
    for rate in (0.1, 1.0):
        event = PoissonSampledEvent(rate, ATOMS[name])
        added, exchanged = (
            spent(event, count=STEPS, relation=which, **kind) for which in ("add-remove", "replace-one")
        )
        assert added <= exchanged * (1 + 1e-9)
    if name == "gaussian":
        # Both records at the clip norm, on opposite sides: twice the distance.
        twice = spent(GaussianEvent(1.5), count=STEPS, **kind)
        assert spent(GaussianEvent(3.0), count=STEPS, relation="replace-one", **kind) == pytest.approx(twice, rel=1e-9)


@pytest.mark.slow_cases(
    "add-remove-rdp-sampled laplace",
    "add-remove-rdp-sampled randomised response",
    "replace-one-pld-sampled gaussian",
    "zero-out-rdp-sampled laplace",
    "zero-out-rdp-sampled randomised response",
    *(f"{way}-pld-sampled {law}" for way in ("add-remove", "zero-out") for law in ("laplace", "randomised response")),
)
@every
@kinds
@relations
def test_delta_for_epsilon_undoes_epsilon_for_delta(name: str, kind: dict[str, object], relation: Relation) -> None:
    account = ClassicalAccountant(delta=DELTA, relation=relation, **kind)  # type: ignore[arg-type]
    account.compose(EVENTS[name], STEPS)
    assert account.delta_for(account.epsilon()) == pytest.approx(DELTA, rel=0.02)
    assert account.delta_for(account.epsilon() * 1.1) < DELTA < account.delta_for(account.epsilon() * 0.9)


@dataclass(frozen=True)
class Unheard(Event):
    """An event that nobody taught the accountant."""


@pytest.mark.parametrize(
    "event",
    [
        Unheard(),
        "GaussianEvent",
        SelfComposedEvent(Unheard(), 3),
        ComposedEvent([GaussianEvent(1.0), Unheard()]),
        PoissonSampledEvent(0.0, Unheard()),
        PoissonSampledEvent(0.1, SelfComposedEvent(GaussianEvent(1.0), 2)),
    ],
    ids=[
        "unknown",
        "a string",
        "unknown, thrice",
        "with an unknown one",
        "unknown, never sampled",
        "two as one sample",
    ],
)
def test_what_is_not_known_is_refused_and_charges_nothing(event: Event) -> None:
    account = ClassicalAccountant(delta=DELTA)
    account.compose(GaussianEvent(2.0))
    before = account.state()
    for act in (account.compose, account.epsilon_after_event):
        with pytest.raises(InvalidArgument, match=r"^event:"):
            act(event)
    assert account.state() == before


@pytest.mark.parametrize("name", [name for name in EVENTS if "response" not in name and "widths" not in name])
def test_written_down_and_read_again_it_is_the_same(name: str) -> None:
    account = ClassicalAccountant(delta=DELTA, relation=Relation.REPLACE_ONE)
    account.compose(ComposedEvent([EVENTS[name], NothingEvent()]), 3)
    twin = ClassicalAccountant.restore(json.loads(json.dumps(account.state())))
    assert (twin.epsilon(), twin.certificate()) == (account.epsilon(), account.certificate())


def test_a_pair_of_your_own_is_not_written_down() -> None:
    account = ClassicalAccountant(delta=DELTA)
    account.compose(ATOMS["randomised response"])
    with pytest.raises(InvalidArgument, match=r"^event:"):
        account.state()


@pytest.mark.parametrize("rate", [0.05, 0.4])
@pytest.mark.parametrize("order", [2.0, 3.5, 7.25])
def test_sampled_laws_are_bounded_in_both_directions_at_real_orders_too(rate: float, order: float) -> None:
    """Quadrature of the Laplace mixture and lattice sums of the discrete Gaussian's, in 20 digits."""
    with mp.workdps(20):
        q, a = mp.mpf(rate), mp.mpf(order) + 1

        def laplace(mean: float) -> mp.mpf:
            return lambda x: mp.exp(-abs(x - mean) / 3) / 6

        def both(p: object, base: object, add: object) -> mp.mpf:
            mixed = lambda x: (1 - q) * base(x) + q * p(x)  # type: ignore[operator]  # noqa: E731
            forward = add(lambda x: mixed(x) ** a * base(x) ** (1 - a))  # type: ignore[operator]
            reverse = add(lambda x: base(x) ** a * mixed(x) ** (1 - a))  # type: ignore[operator]
            return max(mp.log(forward), mp.log(reverse))

        ends = [-200, -60, -20, 0, 1, 21, 61, 201]
        truth = both(laplace(1), laplace(0), lambda f: mp.quad(f, ends))
        total = mp.fsum(mp.exp(-mp.mpf(k * k) / 8) for k in range(-60, 61))
        lattice = lambda mean: lambda k: mp.exp(-mp.mpf((k - mean) ** 2) / 8) / total  # noqa: E731
        discrete = both(lattice(3), lattice(0), lambda f: mp.fsum(f(k) for k in range(-50, 54)))
    for event, exact in ((LaplaceEvent(3.0), truth), (DiscreteGaussianEvent(2.0, sensitivity=3.0), discrete)):
        account = ClassicalAccountant(delta=1e-300, method="rdp", order=order)
        account.compose(PoissonSampledEvent(rate, event))
        constant = order * math.log(order / (order + 1)) - math.log(order + 1)
        moment = account.epsilon() * order - constant + math.log(1e-300)
        # The constant −ln δ = 691 leaves 13 digits.
        assert float(exact) - 1e-10 <= moment <= float(exact) * 1.3 + 1e-10


def test_the_peer_agrees_on_gaussian_and_laplace_events() -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    orders = [order + 1 for order in range(1, 60)]
    peer = RdpAccountant(orders)
    peer.compose(dp_accounting.LaplaceDpEvent(8.0), 20)
    assert spent(LaplaceEvent(8.0), count=20, method="rdp") <= peer.get_epsilon(DELTA) * (1 + 1e-6)
    assert spent(LaplaceEvent(8.0), count=20, method="rdp") >= peer.get_epsilon(DELTA) * 0.97
    for rate in (0.01, 0.2):
        peer = RdpAccountant(orders)
        peer.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1.5)), 100)
        ours = spent(PoissonSampledEvent(rate, GaussianEvent(1.5)), count=100, method="rdp")
        assert ours == pytest.approx(peer.get_epsilon(DELTA), rel=0.03)
    exchanged = RdpAccountant(orders, neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    exchanged.compose(dp_accounting.GaussianDpEvent(3.0), 10)
    # There "noise multiplier" is per sensitivity under the relation; here per clip norm.
    ours = spent(GaussianEvent(6.0), count=10, method="rdp", relation=Relation.REPLACE_ONE)
    assert ours == pytest.approx(exchanged.get_epsilon(DELTA), rel=0.01)


def test_alpha_is_lambda_plus_one_and_only_one_may_be_given() -> None:
    for alpha in (1.5, 9.0):
        one = ClassicalAccountant(delta=DELTA, method="rdp", alpha=alpha)
        two = ClassicalAccountant(delta=DELTA, method="rdp", order=alpha - 1)
        for account in (one, two):
            account.step(noise_multiplier=2.0, sampling_rate=0.1, count=30)
        assert one.epsilon() == two.epsilon()
        assert one.certificate().order == alpha - 1
    for wrong in ({"alpha": 3.0, "order": 2.0}, {"alpha": 1.0}, {"alpha": 0.5}, {"alpha": np.nan}):
        with pytest.raises(InvalidArgument, match=r"^alpha:"):
            ClassicalAccountant(delta=DELTA, method="rdp", **wrong)


def test_it_shows_what_it_is() -> None:
    account = ClassicalAccountant(delta=DELTA, method="rdp", order=4.0, relation=Relation.REPLACE_ONE)
    account.compose(LaplaceEvent(8.0), 2)
    assert repr(account).startswith("ClassicalAccountant(delta=1e-06, method='rdp', order=4.0, relation='replace-one'")
    assert f"steps=2, epsilon={account.epsilon():.4g}" in repr(account)
