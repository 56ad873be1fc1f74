"""The description of a source by its hospital in `source.toml`: where its records are, never a password."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from record_sources.errors import SourceError
from record_sources.source_file.addresses import checked_address, in_words
from study_protocol.cells import column_name
from study_protocol.study.cohort import PATIENTS
from study_protocol.wire.text import Text
from study_protocol.wire.values import Name, Positive, Whole
from study_protocol.wire.written import Unreadable, read_toml
from study_protocol.wire.wrong_entries import wrong_entries

RECORDS = "records"
"""The table of a source that has one table alone."""


def _folder(info: ValidationInfo) -> Path:
    return cast("dict[str, Path]", info.context or {}).get("folder", Path())


def _existing(is_kind: Callable[[Path], bool], kind: str) -> Callable[[Path, ValidationInfo], Path]:
    def check(path: Path, info: ValidationInfo) -> Path:
        whole = _folder(info) / path.expanduser()
        if not is_kind(whole):
            raise ValueError(f"there is no {kind} {path}. Paths are relative to the folder of this file")
        return whole

    return check


_File = Annotated[Path, AfterValidator(_existing(Path.is_file, "file"))]
_Folder = Annotated[Path, AfterValidator(_existing(Path.is_dir, "folder"))]
_FileOrFolder = Annotated[Path, AfterValidator(_existing(Path.exists, "file or folder"))]
_Column = Annotated[Text, Field(min_length=1), AfterValidator(column_name)]


class _Entries(BaseModel):
    # A refused entry may be a password.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class RowsDescription(_Entries):
    """Tables whose rows stay as the hospital's query or sheet gives them."""

    patient_column: _Column = Field(default="patient", description="the column with the patient of a row")
    several_rows: bool = Field(default=False, description="true: a table may have several rows of a patient")


class DatabaseAddress(_Entries):
    """The place of a database, and the place of its password."""

    url: str = Field(description="address of the database as SQLAlchemy writes it, without a password")
    password_file: _File | None = Field(default=None, description="file that holds the password alone")
    password_environment: Text | None = Field(default=None, description="environment variable with the password")
    password_keyring: Text | None = Field(
        default=None, description="service in the system's keyring. The user is that of the address"
    )
    timeout: Annotated[Positive, Field(le=604_800)] = Field(default=3600.0, description="seconds, of each statement")

    @field_validator("timeout", mode="before")
    @classmethod
    def _whole_seconds(cls, seconds: Any) -> Any:
        return float(seconds) if type(seconds) is int else seconds

    @field_validator("url")
    @classmethod
    def _without_password(cls, url: str, info: ValidationInfo) -> str:
        return checked_address(url, _folder(info))

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        names = [name for name in PASSWORD_ENTRIES if getattr(self, name) is not None]
        if len(names) > 1:
            raise ValueError(f"{names[0]} and {names[1]} both say where the password is. Keep one of them")
        return self

    @property
    def place(self) -> str:
        """The database in words, for a person and the ledger."""
        return in_words(self.url)


PASSWORD_ENTRIES = ("password_file", "password_environment", "password_keyring")


class SqlDescription(DatabaseAddress, RowsDescription):
    """One query for one table, or one for each table of histories."""

    kind: Literal["sql"]
    query: _File | None = Field(default=None, description="file with one SELECT: one table")
    tables: dict[Name, _File] | None = Field(
        default=None, description="table -> file with one SELECT: the table `patients`, and tables of events"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.query is None) == (self.tables is None):
            raise ValueError(
                "either query or tables says what is read: query for one table, tables for patients and their events"
            )
        if self.tables is not None and (PATIENTS not in self.tables or len(self.tables) < 2):
            raise ValueError(f"tables: a table `{PATIENTS}` and at least one table of events are expected")
        return self

    @property
    def queries(self) -> dict[str, Path]:
        """The file of the query of each table. A single one is called `records`."""
        return {RECORDS: self.query} if self.query is not None else dict(self.tables or {})


class OmopDescription(DatabaseAddress):
    """A database in OMOP's common data model. The columns come from the study's section `cohort`."""

    kind: Literal["omop"]
    cdm_schema: Text | None = Field(default=None, alias="schema", description="schema of the clinical tables")
    vocabulary_schema: Text | None = Field(default=None, description="schema of the vocabulary. Left out: the same")
    patient: Literal["person_id", "person_source_value"] = Field(
        default="person_id", description="the column of `person` that names a patient"
    )


class FhirDescription(_Entries):
    """FHIR bulk files. The columns come from the study's section `cohort`, or from ViewDefinitions."""

    kind: Literal["fhir"]
    folder: _Folder = Field(description="folder of .ndjson or .ndjson.gz files")
    vocabulary: _Folder | None = Field(default=None, description="folder with the files of an OMOP vocabulary")
    views: _FileOrFolder | None = Field(default=None, description="ViewDefinitions of SQL on FHIR, as JSON")
    patient_column: _Column = Field(default="patient", description="of views: the column with the patient of a row")
    several_rows: bool = Field(default=False, description="of views: true where a patient may have several rows")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.vocabulary is None) == (self.views is None):
            raise ValueError("either vocabulary or views says how resources become columns: keep one of them")
        return self


class WorkbookDescription(RowsDescription):
    """One sheet of a workbook."""

    kind: Literal["workbook"]
    file: _File = Field(description="the workbook")
    sheet: Text = Field(description="name of the sheet")
    header_row: Annotated[Whole, Field(ge=1, le=1_048_576)] = Field(default=1, description="row with column names")


SourceDescription = SqlDescription | OmopDescription | FhirDescription | WorkbookDescription


class SourceFile(_Entries):
    """The whole file `source.toml`."""

    source: Annotated[SourceDescription, Field(discriminator="kind")]


def read_description(path: Path) -> SourceDescription:
    """Return what the file says of its source. Paths in it are relative to its folder.

    Raises:
        SourceError: the file is missing, is no TOML, or has entries that fit no source. No entry is quoted.
    """
    try:
        written = read_toml(path.read_bytes())
        # As JSON: TOML's dates and times are no entries of a source.
        return SourceFile.model_validate_json(json.dumps(written), context={"folder": path.parent}).source
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, SourceFile))
        raise SourceError(f"{path.name} describes no source:\n{wrong}") from None
    except FileNotFoundError:
        raise SourceError(f"there is no file {path.name}") from None
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}") from None
    except TypeError:
        raise SourceError(f"{path.name}: a date or time in it has no quotation marks") from None
    except (Unreadable, RecursionError) as error:
        raise SourceError(f"{path.name} is no TOML: {error}") from None
