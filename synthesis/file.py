"""The file of synthetic records, Parquet or CSV, with what a reader needs to make the same records again."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import itertools
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from study_protocol.queries.variables import MISSING, Variable
from study_protocol.study.queries import PublishedAnswer, SignedAnswer
from study_protocol.study.synthesis import Synthesis
from study_protocol.versions import program_version
from study_protocol.wire.documents import read_document
from study_protocol.wire.signing import canonical_json, decode_public_key
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name, Sha256, Whole
from synthesis.chain import follow
from synthesis.model.arithmetic import Integers
from synthesis.released import records_of
from synthesis.sets import sets_of

_KEY = b"wardround-synthetic"
SUFFIXES = (".parquet", ".csv")
_LARGEST = sys.float_info.max


class Provenance(Message):
    """Where synthetic records come from. All of it is public."""

    kind: Literal["synthetic records"] = Field(default="synthetic records", description="no row is a patient")
    study: Name = Field(description="which study was asked")
    settings_sha256: Sha256 = Field(description="of the study's settings")
    synthesis: Synthesis = Field(description="the section of the settings: columns, rule, number of rows, seed")
    answers: tuple[SignedAnswer, ...] = Field(description="each names its ledger entry, and the coordinator signed it")
    coordinator_key: Text = Field(description="public key of these signatures, base64url")
    ledger_entries: Whole = Field(ge=1, description="length of the ledger at the entry that charged the last answer")
    ledger_sha256: Sha256 = Field(description="hash of that entry")
    certificate: Text = Field(description="the command that shows the guarantee")
    certificate_sha256: Sha256 | None = Field(
        default=None,
        description="of the signed content of the certificate when the file was made. null: a study without models",
    )
    records_sha256: Sha256 = Field(description="of the canonical rows")
    set_number: Whole | None = Field(
        default=None,
        exclude_if=lambda number: number is None,
        description="of a set among several, from 1. Left out: the only file, whose estimates are shrunk",
    )
    versions: dict[str, Text] = Field(description="programs and libraries that made it")


@dataclass(frozen=True)
class Records:
    """Synthetic records with their provenance. cells: (rows, columns)."""

    cells: Integers
    provenance: Provenance


def made(
    study: str,
    settings_sha256: str,
    synthesis: Synthesis,
    answers: Sequence[SignedAnswer],
    coordinator_key: str,
    certificate_sha256: str | None = None,
    set_number: int | None = None,
) -> Records:
    """Make the records of signed answers, or those of one set of several (`sets_of`).

    Raises:
        SigningError: an answer is not signed with this key.
        ValueError: the answers are not those of this synthesis.
    """
    key, by_question = decode_public_key(coordinator_key), dict[str, PublishedAnswer]()
    for answer in answers:
        answer.require_signed(key)
        if answer.published.study != study:
            raise ValueError(f"an answer is of study {answer.published.study}, not of {study}")
        by_question[answer.published.sha256] = answer.published
    chain = follow(synthesis, by_question.get)
    if chain.document is None and [answer.published for answer in answers] != list(chain.answers):
        raise ValueError("there are answers that the records are not made of")
    cells = records_of(synthesis, chain) if set_number is None else next(sets_of(synthesis, chain, [set_number]))
    last = chain.answers[-1]
    provenance = Provenance(
        study=study,
        settings_sha256=settings_sha256,
        synthesis=synthesis,
        answers=tuple(answers),
        coordinator_key=coordinator_key,
        ledger_entries=last.ledger_entries,
        ledger_sha256=last.ledger_sha256,
        certificate=f"wardround {'certificate show' if certificate_sha256 else 'ledger verify'} {study}",
        certificate_sha256=certificate_sha256,
        records_sha256=digest_of(columns_of(synthesis.columns, cells)),
        set_number=set_number,
        versions={"wardround": program_version(), "numpy": np.__version__},
    )
    return Records(cells, provenance)


def columns_of(variables: Sequence[Variable], cells: Integers) -> dict[str, list[str | float | None]]:
    """Return the values of each column: categories, middles of bins, None where missing."""
    return {
        variable.column: [values_of(variable)[cell] for cell in cells[:, number].tolist()]
        for number, variable in enumerate(variables)
    }


def values_of(variable: Variable) -> list[str | float | None]:
    """Return the value that stands for each cell, and lies in it. An open bin is as wide as the one beside it."""
    if variable.edges is None:
        return [None if label == MISSING and not variable.presence else label for label in variable.labels]
    edges = list(variable.edges)
    # Of one edge alone, wide enough to tell both sides apart.
    lone_width = max(1.0, abs(edges[0]) * 2.0**-40)
    first = edges[1] - edges[0] if len(edges) > 1 else lone_width
    last = edges[-1] - edges[-2] if len(edges) > 1 else lone_width
    low = max(min(edges[0] - first, math.nextafter(edges[0], -math.inf)), -_LARGEST)
    return [*itertools.starmap(_middle, itertools.pairwise((low, *edges, min(edges[-1] + last, _LARGEST)))), None]


def _middle(low: float, high: float) -> float:
    middle = low / 2 + high / 2
    # Between neighbours among floats there is none. Each value lies in its own cell [low, high).
    return middle if low <= middle < high else low


def digest_of(columns: dict[str, list[str | float | None]]) -> str:
    """Return the SHA-256 (hex) of the names and then of the rows as canonical JSON, one a line."""
    digest = hashlib.sha256(canonical_json(list(columns)) + b"\n")
    for row in zip(*columns.values(), strict=True):
        digest.update(canonical_json(list(row)) + b"\n")
    return digest.hexdigest()


def write(path: Path, records: Records) -> None:
    """Write a whole file or none. A CSV file has its provenance beside it, in PATH.json, which is written first.

    Raises:
        ValueError: the name ends in neither .parquet nor .csv.
        OSError: it cannot be written, such as on a full disk.
    """
    columns = columns_of(records.provenance.synthesis.columns, records.cells)
    document = records.provenance.model_dump_json().encode()
    if path.suffix == ".parquet":
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        content = io.BytesIO()
        parquet.write_table(arrow.table(columns).replace_schema_metadata({_KEY: document}), content)
        _replace(path, content.getvalue())
        return
    if path.suffix != ".csv":
        raise ValueError(f"{path.name}: synthetic records are written to a file that ends in .parquet or .csv")
    _replace(provenance_path(path), document)
    _replace(path, _csv(columns))


def _csv(columns: dict[str, list[str | float | None]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if value is None else value for value in row] for row in zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        # Also where somebody stops it.
        temporary.unlink(missing_ok=True)


def path_of_set(path: Path, number: int) -> Path:
    """Return the file of one set: `records-03.csv` beside `records.csv`."""
    return path.with_name(f"{path.stem}-{number:02}{path.suffix}")


def provenance_path(path: Path) -> Path:
    """Return the file beside a CSV file that says where its records come from."""
    return path.with_name(f"{path.name}.json")


def provenance_of(path: Path) -> Provenance | None:
    """Return what the file says of itself, unverified. None: `wardround synth` did not write it. Raises ValueError."""
    if path.suffix == ".parquet" and path.is_file():
        metadata: dict[bytes, bytes] = import_module("pyarrow.parquet").read_schema(path).metadata or {}
        document = metadata.get(_KEY)
    else:
        sidecar = provenance_path(path)
        document = sidecar.read_bytes() if path.suffix == ".csv" and sidecar.is_file() else None
    return None if document is None else read_document(Provenance, document)


def read(path: Path) -> tuple[Provenance, str]:
    """Return the provenance and the digest of the rows as they stand in the file. Raises ValueError, OSError."""
    return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)


def verify(path: Path) -> Provenance:
    """Make the records of a file again from its signed answers, and compare them.

    Raises:
        SigningError: an answer is not signed with the key that the file names.
        ValueError: the file holds other records, or is none of synthetic records.
    """
    provenance, file_digest = read(path)
    expected_provenance = made(
        provenance.study,
        provenance.settings_sha256,
        provenance.synthesis,
        provenance.answers,
        provenance.coordinator_key,
        provenance.certificate_sha256,
        provenance.set_number,
    ).provenance
    if expected_provenance.records_sha256 != file_digest:
        versions = ", ".join(f"{name} {version}" for name, version in provenance.versions.items())
        raise ValueError(f"{path.name} holds other records than its answers and seed give (made with {versions})")
    if expected_provenance.model_copy(update={"versions": provenance.versions}) != provenance:
        raise ValueError(f"{path.name} says other things of its records than its answers do")
    return provenance


def _read_parquet(path: Path) -> tuple[Provenance, str]:
    table = _parquet_table(path)
    metadata: dict[bytes, bytes] = table.schema.metadata or {}
    document = metadata.get(_KEY)
    if document is None:
        raise ValueError(f"{path.name} does not say where its records come from: `wardround synth` did not write it")
    provenance = _provenance(path, document)
    names = [variable.column for variable in provenance.synthesis.columns]
    # Of two columns of one name, or where an index is declared, programs show different ones.
    if table.column_names != names or len(metadata) > 1 or not _has_own_types(table):
        raise ValueError(f"{path.name} was saved again by another program or changed: take the file as it was written")
    # No float that is written is NaN: a text, so that the digest differs.
    columns = {name: ["NaN" if value != value else value for value in table[name].to_pylist()] for name in names}
    return provenance, digest_of(columns)


def _parquet_table(path: Path) -> Any:
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    try:
        # Not `read_table`, which takes columns from the names of folders.
        with parquet.ParquetFile(path) as file:
            return file.read()
    except (arrow.ArrowException, OSError) as error:
        if not path.is_file():
            raise
        raise ValueError(f"{path.name} is no whole Parquet file: it was cut off or changed. Copy it again") from error


def _has_own_types(table: Any) -> bool:
    arrow = import_module("pyarrow")
    return all(field.type in (arrow.string(), arrow.float64(), arrow.null()) for field in table.schema)


def _read_csv(path: Path) -> tuple[Provenance, str]:
    sidecar = provenance_path(path)
    if not sidecar.exists():
        raise ValueError(f"{sidecar.name} is missing: it stands beside a CSV file and says where its records come from")
    provenance = _provenance(sidecar, sidecar.read_bytes())
    columns = provenance.synthesis.columns
    lines = _csv_lines(path, provenance.synthesis.rows)
    if lines[0] != [variable.column for variable in columns] or any(len(line) != len(columns) for line in lines):
        raise ValueError(f"{path.name} has other columns than {sidecar.name} names")
    cells = [[_cell(line[place], variable) for line in lines[1:]] for place, variable in enumerate(columns)]
    values = {variable.column: column for variable, column in zip(columns, cells, strict=True)}
    if _csv(values) != path.read_bytes():
        # Such as 2_5.0, which is 25.0 to one program and a text to another.
        raise ValueError(f"{path.name} is not written as its records are: take the file as it was written")
    return provenance, digest_of(values)


def _csv_lines(path: Path, rows: int) -> list[list[str]]:
    """Return the header and so many rows. Raises ValueError."""
    text = path.read_bytes()
    if b"\r" in text or text.startswith(codecs.BOM_UTF8):
        raise ValueError(
            f"{path.name} was saved again by another program, as its line ends or first bytes say, which may change "
            "values: take the file as it was written"
        )
    lines = list(csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline="")))
    if len(lines) - 1 != rows or not text.endswith(b"\n"):
        raise ValueError(
            f"{path.name} holds {max(len(lines) - 1, 0):,} whole rows of {rows:,}: it was cut off or changed. Copy it "
            "again"
        )
    return lines


def _provenance(path: Path, document: bytes) -> Provenance:
    try:
        return read_document(Provenance, document)
    except ValueError as error:
        raise ValueError(f"{path.name} does not say where the records come from: it was changed or cut off") from error


def _cell(text: str, variable: Variable) -> str | float | None:
    if not text or variable.edges is None:
        return text or None
    try:
        return float(text)
    except ValueError:
        # No number that was written: the digest says so.
        return text
