"""The studies that a site policy allows, and the files that it is read from."""

import math
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import OwnLimit
from client_sdk.guard.policy import SitePolicy
from tests.factories.settings import settings

# Of the factory's studies.
WIDE = {"largest_epsilon": 50.0}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("rule", "needed"), [("refused", (True, True)), ("unmasked", (False, True)), ("laboratory", (False, False))]
)
def test_which_studies_need_a_pinned_roster(masked: bool, rule: str, needed: tuple[bool, bool]) -> None:
    policy = SitePolicy.model_validate(WIDE | {"unpinned_roster": rule})
    assert policy.needs_pin(settings(masked=masked)) == needed[masked]


def test_a_file_is_read_with_the_list_beside_it(tmp_path: Path) -> None:
    (tmp_path / "withdrawn.txt").write_text("p1\n\n p7 \n")
    path = tmp_path / "policy.toml"
    path.write_text(
        'studies = ["sepsis"]\nexcluded_patients_file = "withdrawn.txt"\nexcluded_patients = ["p3"]\n'
        "[limits.instance]\nepsilon = 2.0\ndelta = 1e-6\n[limits.client]\nepsilon = 4.0\ndelta = 1e-5\norder = 3.0\n"
    )
    policy = SitePolicy.read(path)
    assert policy.excluded_patients == ("p3", "p1", "p7")
    assert policy.own_limits() == (
        OwnLimit("instance", 2.0, 1e-6, math.log(1e6)),
        OwnLimit("client", 4.0, 1e-5, 3.0),
    )
    assert not policy.unnoised_updates
    assert not policy.plain_disclosure
    assert "p7" not in repr(policy)


def test_a_byte_order_mark_is_no_part_of_the_first_patient(tmp_path: Path) -> None:
    """Spreadsheets and editors write one; the first patient of the list would have been trained on."""
    (tmp_path / "withdrawn.txt").write_text("p1\np7\n", encoding="utf-8-sig")
    path = tmp_path / "policy.toml"
    path.write_text('excluded_patients_file = "withdrawn.txt"\n', encoding="utf-8-sig")
    assert SitePolicy.read(path).excluded_patients == ("p1", "p7")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("study = ['sepsis']", "study"),
        ("least_noise_multiplier = 0.0", "least_noise_multiplier"),
        ("least_noise_multiplier = nan", "least_noise_multiplier"),
        ("least_noise_multiplier = inf", "least_noise_multiplier"),
        ("studies = []", "studies"),
        ("[limits.instance]\nepsilon = -1.0\ndelta = 1e-5", "limits.instance.epsilon"),
        ("[limits.instance]\nepsilon = 1.0", "limits.instance.delta"),
        ("[limits.hospital]\nepsilon = 1.0\ndelta = 0.1", "limits.hospital"),
        ("unnoised_updates = 'patient-17'", "unnoised_updates"),
        ("largest_epsilon = 1.0\nstudies = [", "is not valid TOML: line 2: an entry is not finished"),
        ("excluded_patients_file = 'nowhere.txt'", r"list .*nowhere.txt that .* cannot be read: No such file"),
        ("excluded_patients_file = 3", "excluded_patients_file: must be the name of a file"),
        (
            "least_noise_multipler = 1.0",
            "least_noise_multipler: there is no such entry. Did you mean least_noise_multi",
        ),
        ("queries = 'ask'", r"queries: there is no such entry. It belongs to section \[statistics\]"),
        ("excluded_patient_file = 'x'", "Did you mean excluded_patients_file?"),
        (
            "[limits.instance]\nepsilon = 1.0\ndelta = 0.1\norders = 4.0",
            "limits.instance.orders: .* Did you mean order?",
        ),
        ("studies = 'sepsis'", "studies: must be a list"),
        # Letter by letter it would be a list of patients, and nobody's identifier.
        ("excluded_patients_file = 'policy.toml'\nexcluded_patients = 'patient-17'", "excluded_patients"),
    ],
    ids=[
        "misspelt",
        "no noise",
        "noise NaN",
        "noise infinite",
        "no studies",
        "epsilon below zero",
        "no delta",
        "unknown unit",
        "text for a switch",
        "no TOML",
        "no list",
        "a list that is a number",
        "misspelt number",
        "in no section",
        "misspelt list",
        "misspelt in a section",
        "no list of studies",
        "one patient for a list",
    ],
)
def test_a_mistake_in_the_file_is_named_and_never_ignored(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=named) as caught:
        SitePolicy.read(path)
    assert "patient-17" not in str(caught.value)


def test_a_missing_file_is_an_error_not_an_open_door(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        SitePolicy.read(tmp_path / "policy.toml")
