"""A study from its creation to its end, through the use cases alone."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import lifecycle
from tests.factories.hospital_double import update
from tests.factories.ledgers import kinds_in
from tests.factories.settings import ORDERS
from tests.factories.studies import open_study, read_model, work


@pytest.mark.slow
def test_a_parallel_study_trains_until_its_horizon(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, bayesian={"adversary": "path"}, max_steps=3, training={"algorithm": "fedavg"})
    for number in (1, 2, 3):
        work(coordinator)
        assert views.read_budget(coordinator, "sepsis").can_continue
        for i, hospital in enumerate(hospitals):
            given = hospital.assignment()
            assert given is not None
            assert given.assignment.round == number
            assert given.assignment.model.version == number - 1
            log_moments = tuple(1e-3 * number * (i + 1) for _ in (0, *ORDERS))
            assert hospital.send(number, update(0.4, log_moments=log_moments)).created
    work(coordinator)

    study = lifecycle.show(coordinator, "sepsis")
    assert (study.state, study.stop_reason) == ("finished", "max-steps-reached")
    # Three rounds of three clients that each move by 0.4, over the public constant 4.
    np.testing.assert_allclose(read_model(coordinator, "sepsis")["weight"], 3 * 3 * 0.4 / 4, rtol=1e-6)
    page = ledger_page(coordinator, "sepsis")
    assert kinds_in(page.entries) == ["opened", *["reserved", "settled"] * 3, "finished"]
    report = [entry.body["report"]["filter"] for entry in page.entries if entry.kind == "settled"]
    assert report == [pytest.approx(value, rel=1e-15) for value in (3e-3, 6e-3, 9e-3)]
    statement = views.read_budget(coordinator, "sepsis")
    assert not statement.can_continue
    assert statement.ledger.head == f"sha256:{page.entries[-1].sha256}"
    replayed = replay(Entry.from_dict(entry.model_dump()) for entry in page.entries)
    enforced = [limit.spent for limit in statement.limits if limit.epsilon is not None]
    bayesian, classical = (account.epsilon() for account in replayed.accounts)
    # What is shown for a typical record is never above what is shown for any record.
    assert enforced == [min(bayesian, classical), classical]
    assert [view.state for view in views.list_rounds(coordinator, "sepsis", with_clients=False).rounds] == [
        "released"
    ] * 3
    with pytest.raises(Rejected, match="study-finished"):
        hospitals[0].assignment()


@pytest.mark.quick("sqlite")
def test_a_client_level_study_adds_its_own_noise_once(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, scheme="client", bayesian=True, max_steps=2)
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update(0.1))
    work(coordinator)
    released = read_model(coordinator, "sepsis", 1)
    noise = np.concatenate([released[name].reshape(-1) for name in sorted(released)]) * 4 - 0.3
    # Eight draws of standard deviation 2: all within 6.5 deviations, none of them zero, but for 1e-9.
    assert np.all(np.abs(noise) < 13)
    assert np.all(noise != 0)
    page = ledger_page(coordinator, "sepsis")
    settled = next(entry for entry in page.entries if entry.kind == "settled")
    assert sum(settled.body["report"]["counts"]) == 3
