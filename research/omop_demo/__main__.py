"""Write the patients of the eICU demo as hospitals keep records.

python -m research.omop_demo --data $WARDROUND_DATA/eicu_demo --url sqlite:///omop.db
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sqlalchemy import create_engine

from research.omop_demo.fhir import write_resources
from research.omop_demo.omop import TablesExist, write_database
from research.omop_demo.patients import REGIONS, Patients, load_patients
from research.omop_demo.table import patient_table, write_csv, write_workbook
from research.omop_demo.vocabulary import Vocabulary, load_vocabulary, write_vocabulary
from study_protocol.study.cohort import Cohort
from wardround.cli.shared.settings_file import read_any_settings
from wardround.demo.scenarios import DataMissing

STUDY = Path(__file__).with_name("study.toml")


def main(arguments: list[str] | None = None) -> int:
    """Write what the options name."""
    options = _parser().parse_args(arguments)
    vocabulary = load_vocabulary()
    try:
        patients = load_patients(options.data, vocabulary, options.region)
        _write(options, patients, vocabulary)
    except (DataMissing, TablesExist) as fault:
        print(f"{fault}.", file=sys.stderr)
        return 1
    print(
        f"{len(patients.persons)} patients, {len(patients.visits)} visits, {len(patients.conditions)} diagnoses, "
        f"{len(patients.measurements)} measurements, {len(vocabulary.concepts)} concepts"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m research.omop_demo", description=__doc__)
    default = Path(os.environ.get("WARDROUND_DATA", ".")) / "eicu_demo"
    parser.add_argument("--data", type=Path, default=default, help="folder of the eICU demo")
    parser.add_argument("--url", help="database for OMOP's tables, such as sqlite:///omop.db. It has none of them yet")
    parser.add_argument("--fhir", type=Path, help="folder for FHIR R4 NDJSON files")
    parser.add_argument("--vocabulary", type=Path, help="folder for vocabulary files as Athena's download has them")
    parser.add_argument("--workbook", type=Path, help="file for the study's table as a workbook")
    parser.add_argument("--csv", type=Path, help="file for the study's table as CSV")
    parser.add_argument("--settings", type=Path, default=STUDY, help="settings with the cohort of the two tables")
    parser.add_argument("--region", choices=REGIONS, help="keep the patients of the hospitals of one region")
    return parser


def _write(options: argparse.Namespace, patients: Patients, vocabulary: Vocabulary) -> None:
    if options.url:
        engine = create_engine(options.url)
        write_database(engine, patients, vocabulary)
        engine.dispose()
    if options.fhir:
        write_resources(options.fhir, patients, vocabulary)
    if options.vocabulary:
        write_vocabulary(vocabulary, options.vocabulary)
    for path, write in ((options.csv, write_csv), (options.workbook, write_workbook)):
        if path:
            write(path, patient_table(patients, vocabulary, _cohort(options.settings)))


def _cohort(settings: Path) -> Cohort:
    cohort = read_any_settings(settings).cohort
    if cohort is None:
        raise SystemExit(f"{settings} has no section cohort: name other settings with --settings")
    return cohort


if __name__ == "__main__":
    sys.exit(main())
