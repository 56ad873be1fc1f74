"""Which way a contribution takes, and what it is in the clear."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from client_sdk.guard.policy import Floors, SitePolicy
from client_sdk.secure_sum.delivery import MaskedDelivery
from client_sdk.study.delivery import Capabilities, ClearDelivery, delivery_of
from private_learning.training import Contribution
from study_protocol.randomness.source import SecureRandomness
from study_protocol.wire.tensors import TERMS, UPDATE, decode, terms_spec
from tests.factories.masked_studies import reported_log_moments
from tests.factories.settings import settings

MEMBERSHIP: Any = SimpleNamespace(study="sepsis", client="mercy")
UPDATE_OF_ONE = Contribution({"weight": np.array([0.5, -1.0], np.float32)}, None)
SPEC = {UPDATE + "weight": ((2,), "float32")}


def made_for(chosen: Any, folder: Path, policy: SitePolicy | None = None) -> Any:
    able = Capabilities(chosen, SecureRandomness(), None, None)
    verifier: Any = SimpleNamespace(roster=None, vouch=None, total_records=None, charge=None)
    client: Any = SimpleNamespace()
    return delivery_of(client, MEMBERSHIP, policy or SitePolicy(), able, verifier, folder)


def test_masks_where_the_study_has_some(tmp_path: Path) -> None:
    assert isinstance(made_for(settings(), tmp_path), ClearDelivery)
    assert isinstance(made_for(settings(masked=True, bayesian=True), tmp_path), MaskedDelivery)


def test_a_session_bears_what_the_study_and_the_hospital_ask(tmp_path: Path) -> None:
    strict = SitePolicy.model_validate({"least_colluders": 3, "least_survivors": 9})
    made = made_for(settings(masked=True, bayesian=True), tmp_path, strict)
    assert made._floors == Floors(3, 9, False)


@pytest.mark.parametrize("bounds", [None, (0.5, 0.1, 0.2, 0.3)])
def test_in_the_clear_the_body_is_the_update_and_its_bounds(bounds: tuple[float, ...] | None) -> None:
    sent: list[tuple[Any, ...]] = []
    delivery = ClearDelivery(lambda *given: sent.append(given))
    log_moments = None if bounds is None else reported_log_moments(bounds)
    assignment: Any = None
    vectors = delivery.prepare(assignment, None)
    body = delivery.body(4, vectors, UPDATE_OF_ONE, log_moments)
    delivery.send(4, body)
    assert sent == [(4, body)]
    found = decode(body, SPEC if bounds is None else SPEC | terms_spec(3))
    assert found[UPDATE + "weight"].tolist() == [0.5, -1.0]
    if bounds is not None:
        assert found[TERMS + "filter"].tolist() == [bounds[0]]
