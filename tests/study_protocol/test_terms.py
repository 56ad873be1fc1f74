"""A study in plain sentences, as hospitals and readers of the dashboard are shown it."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.secure_sum.promises import sums
from study_protocol.study.masking import Masking
from study_protocol.study.outside_witness import OutsideWitness
from study_protocol.study.who_sees_what import disclosures
from study_protocol.terms import in_words
from study_protocol.wire.signing import encode_public_key
from tests.factories.settings import MASKING, settings


def test_who_is_not_protected_is_said_as_well() -> None:
    words = in_words(settings("parallel", bayesian=True), mine=False)
    assert ("protects", "instance: each patient") in words
    assert ("protects", "client: nobody") in words
    assert ("limit, instance classical", "epsilon 50 at delta 1e-05") in words
    assert ("beware", "the operator asked for limits or noise beyond the usual bounds (--i-know)") in words


def test_noise_is_said_where_it_is_added() -> None:
    assert any(
        "with noise that is added at the hospital" in line for line in disclosures(settings("parallel"), mine=False)
    )
    assert any("update, without noise" in line for line in disclosures(settings("client"), mine=False))
    assert any("the sum of all hospitals' updates" in line for line in disclosures(settings("sequential"), mine=True))


@pytest.mark.parametrize(
    ("neighbours", "line"),
    [
        (None, "all others: (n + c) // 2 + 1 of a round's n hospitals rebuild one"),
        (60, "60 neighbours on a ring: 39 of these 61 rebuild one"),
        (60, "nothing where more than 22 of a hospital and its 60 neighbours are lost, or fewer than (n + c)"),
        (60, "no sum is opened that 15 of its hospitals could take apart"),
        (None, "158 hospitals at least are in every sum; c = 15 may side with the coordinator, 143 then do not"),
    ],
    ids=["all: threshold", "ring: threshold", "ring: losses", "ring: no cut", "all: in every sum"],
)
def test_what_the_masks_of_a_study_promise_is_said_in_words(neighbours: int | None, line: str) -> None:
    masking = Masking(**MASKING | {"colluders": 15, "min_survivors": 158, "neighbours": neighbours})
    assert any(line in said for said in sums(masking))
    assert any("ring" in said for said in sums(masking)) == (neighbours is not None)
    assert sums(None) == []


@pytest.mark.parametrize(
    ("algorithm", "steps", "said"),
    [
        ("fedsgd", 1, "one gradient a round, learning rate 17"),
        ("fedavg", 3, "3 local steps a round, learning rate 0.25"),
    ],
)
def test_the_learning_rate_that_is_shown_is_one_that_is_used(algorithm: str, steps: int, said: str) -> None:
    study = settings("parallel")
    changed = study.model_copy(
        update={
            "training": study.training.model_copy(
                update={
                    "algorithm": algorithm,
                    "local_steps": steps,
                    "learning_rate": 0.25,
                    "optimiser": study.training.optimiser.model_copy(update={"learning_rate": 17.0}),
                }
            )
        }
    )
    assert any(line.endswith(said) for name, line in in_words(changed, mine=False) if name == "training")


def test_who_signs_the_ledger_from_outside_is_said_before_anybody_joins() -> None:
    plain = settings()
    key = encode_public_key(Ed25519PrivateKey.generate().public_key())
    schedule = plain.schedule.model_copy(update={"witnesses": (OutsideWitness(name="auditor", public_key=key),)})
    assert any("(auditor)" in line for line in disclosures(plain.model_copy(update={"schedule": schedule}), mine=True))
    assert not any("outside witnesses" in line for line in disclosures(plain, mine=True))
