"""Code systems and codes as OMOP writes them."""

from __future__ import annotations

import pytest

from record_sources.fhir.systems import CONCEPT_IDS, vocabulary_code


@pytest.mark.parametrize(
    ("system", "code", "expected"),
    [
        ("http://loinc.org", "2345-7", ("LOINC", "2345-7")),
        ("http://loinc.org/", "2345-7", ("LOINC", "2345-7")),
        ("urn:oid:2.16.840.1.113883.6.1", "2345-7", ("LOINC", "2345-7")),
        ("http://snomed.info/sct", "44054006", ("SNOMED", "44054006")),
        ("http://snomed.info/sct/731000124108", "44054006", ("SNOMED", "44054006")),
        ("http://hl7.org/fhir/sid/icd-10-cm", "E11.9", ("ICD10CM", "E11.9")),
        ("http://hl7.org/fhir/sid/icd-10", "E11.9", ("ICD10", "E11.9")),
        ("http://fhir.de/CodeSystem/bfarm/icd-10-gm", "E11.9", ("ICD10GM", "E11.9")),
        ("http://fhir.de/CodeSystem/dimdi/icd-10-gm", "E11.9", ("ICD10GM", "E11.9")),
        ("http://fhir.de/CodeSystem/bfarm/atc", "A10BA02", ("ATC", "A10BA02")),
        ("http://hl7.org/fhir/sid/icd-9-cm", "250.00", ("ICD9CM", "250.00")),
        ("http://terminology.hl7.org/CodeSystem/v3-ActCode", "IMP", (CONCEPT_IDS, "9201")),
        ("urn:oid:2.16.840.1.113883.5.4", "EMER", (CONCEPT_IDS, "9203")),
        ("http://terminology.hl7.org/CodeSystem/v3-ActCode", "FLD", None),
        ("http://loinc.org.example", "2345-7", None),
        ("LOINC", "2345-7", None),
        ("urn:example:local", "2345-7", None),
    ],
)
def test_a_code_belongs_to_a_vocabulary(system: str, code: str, expected: tuple[str, str] | None) -> None:
    assert vocabulary_code(system, code) == expected


@pytest.mark.parametrize(
    ("written", "eleven"),
    [
        # The three forms with ten digits, as the FDA's rule for billing fills them.
        ("0777-3105-02", "00777310502"),
        ("50242-040-62", "50242004062"),
        ("60575-4112-1", "60575411201"),
        ("00777-3105-02", "00777310502"),
        ("00777310502", "00777310502"),
        ("0777-3105", "007773105"),
    ],
)
def test_hyphens_of_a_drug_code_become_eleven_digits(written: str, eleven: str) -> None:
    assert vocabulary_code("http://hl7.org/fhir/sid/ndc", written) == ("NDC", eleven)
