"""Code systems of FHIR, and the vocabularies of OMOP that hold the same codes.

Sources: HL7's list of code systems, https://terminology.hl7.org, the table of URIs of US Core 8.0.1,
https://hl7.org/fhir/us/core/vsacname-fhiruri-map.html, and HL7 Germany's base profiles for codes of fhir.de. Classes of
encounters are those that HL7's FHIR to OMOP guide 1.0.0 calls equivalent,
https://hl7.org/fhir/uv/omop/INFORMATIVE1/en/ConceptMap-EncounterClass.html. ACUTE and NONAC are kinds of IMP in
ActCode. Genders are the concepts of OMOP's vocabulary Gender.
"""

from __future__ import annotations

CONCEPT_IDS = "concept ids"
"""Stands for a vocabulary where the code is an OMOP concept id itself."""

_VOCABULARIES = {
    "http://loinc.org": "LOINC",
    "urn:oid:2.16.840.1.113883.6.1": "LOINC",
    "http://snomed.info/sct": "SNOMED",
    "urn:oid:2.16.840.1.113883.6.96": "SNOMED",
    "http://hl7.org/fhir/sid/icd-10-cm": "ICD10CM",
    "urn:oid:2.16.840.1.113883.6.90": "ICD10CM",
    "http://hl7.org/fhir/sid/icd-10": "ICD10",
    "urn:oid:2.16.840.1.113883.6.3": "ICD10",
    "http://fhir.de/CodeSystem/bfarm/icd-10-gm": "ICD10GM",
    "http://fhir.de/CodeSystem/dimdi/icd-10-gm": "ICD10GM",
    "urn:oid:1.2.276.0.76.5.409": "ICD10GM",
    "http://hl7.org/fhir/sid/icd-9-cm": "ICD9CM",
    "urn:oid:2.16.840.1.113883.6.103": "ICD9CM",
    "http://www.nlm.nih.gov/research/umls/rxnorm": "RxNorm",
    "urn:oid:2.16.840.1.113883.6.88": "RxNorm",
    "http://hl7.org/fhir/sid/ndc": "NDC",
    "urn:oid:2.16.840.1.113883.6.69": "NDC",
    "http://www.whocc.no/atc": "ATC",
    "http://fhir.de/CodeSystem/bfarm/atc": "ATC",
    "http://fhir.de/CodeSystem/dimdi/atc": "ATC",
    "urn:oid:2.16.840.1.113883.6.73": "ATC",
    "http://unitsofmeasure.org": "UCUM",
    "urn:oid:2.16.840.1.113883.6.8": "UCUM",
    "http://hl7.org/fhir/sid/cvx": "CVX",
    "urn:oid:2.16.840.1.113883.12.292": "CVX",
    "https://fhir-terminology.ohdsi.org": CONCEPT_IDS,
}
_ACT_CODES = {
    "http://terminology.hl7.org/CodeSystem/v3-ActCode",
    "http://hl7.org/fhir/v3/ActCode",
    "urn:oid:2.16.840.1.113883.5.4",
}
_VISITS = {"IMP": 9201, "ACUTE": 9201, "NONAC": 9201, "AMB": 9202, "EMER": 9203, "VR": 722455, "HH": 581476}
GENDERS = {"male": 8507, "female": 8532, "unknown": 8551, "other": 8521}
YES, NO = ("SNOMED", "373066001"), ("SNOMED", "373067005")
"""Codes of a value that is true or false, as OMOP stores answers."""


def vocabulary_code(system: str, code: str) -> tuple[str, str] | None:
    """Return the OMOP vocabulary and the code in it, or None for a code system that is not known."""
    system = system.strip().rstrip("/")
    if system in _ACT_CODES:
        visit = _VISITS.get(code)
        return None if visit is None else (CONCEPT_IDS, str(visit))
    if system.startswith("http://snomed.info/sct/"):  # of one edition
        system = "http://snomed.info/sct"
    vocabulary = _VOCABULARIES.get(system)
    if vocabulary is None:
        return None
    return vocabulary, _eleven_digits(code) if vocabulary == "NDC" else code


def _eleven_digits(code: str) -> str:
    """Write an NDC with hyphens as OMOP does: labeler, product and package in 5, 4 and 2 digits."""
    parts = code.split("-")
    if len(parts) not in (2, 3):
        return code
    return "".join(part.zfill(width) for part, width in zip(parts, (5, 4, 2), strict=False))
