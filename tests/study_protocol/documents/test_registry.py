"""The entry of the public registry of deployments."""

from __future__ import annotations

import yaml

from study_protocol.documents.registry import SCHEMA, TO_WRITE, as_yaml, entry, yaml_lines
from tests.factories.certificates import ONE, signed


def test_the_registry_s_unit_is_that_of_its_parameters() -> None:
    """One ε is stated: in scheme joint it is the patients' and not the hospitals', who lose more."""
    stated = signed(scheme="joint").certificate
    loss = entry(stated)["deployment"]["privacy_loss"]
    assert (loss["privacy_unit"], stated.limits[0].level) == ("patient", "instance")
    assert all(limit.meaning in loss["privacy_parameters_details"] for limit in stated.limits)


def test_the_registry_s_entry_is_yaml_with_the_safe_side_of_every_number() -> None:
    value = entry(ONE.certificate)
    assert yaml.safe_load(as_yaml(value)) == value
    spent = next(one.spent for one in ONE.certificate.limits if one.definition == "classical" and one.spent)
    assert value["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] >= spent


def test_numbers_and_texts_of_others_are_read_back_as_they_were() -> None:
    """YAML 1.1 reads 1e-05 without a point as a text, and `no` as a Boolean."""
    value = {
        "delta": 1e-05,
        "large": 1e300,
        "flag": "no",
        "text": 'a: "b" # c\n- d',
        "list": [1, None],
        "in": {"x": {}},
    }
    lines = yaml_lines(value)
    assert "delta: 1.0e-05" in lines
    assert yaml.safe_load("\n".join(lines)) == value | {"in": {"x": None}}


def test_facts_that_only_people_know_are_left_for_them() -> None:
    basic = entry(ONE.certificate)["deployment"]["basic"]
    assert [name for name, value in basic.items() if value in (TO_WRITE, [TO_WRITE])] == [
        "data_curators",
        "intended_use",
        "data_product_region",
    ]
    assert as_yaml({"a": 1}) == f"# fields: {SCHEMA}\na: 1\n"
