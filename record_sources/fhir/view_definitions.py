"""ViewDefinitions of SQL on FHIR 2, as a hospital writes them in JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from record_sources.errors import SourceError

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=255)]
Text = Annotated[str, Field(min_length=1, max_length=10_000)]


class _DefinitionPart(BaseModel):
    # Titles, descriptions and tags change no row. A misspelled `forEach` would, and `Select` refuses it.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, alias_generator=to_camel)


class ViewColumn(_DefinitionPart):
    """One column: a FHIRPath expression with a name. `type` is a FHIR type, or its address."""

    name: Name
    path: Text
    type: str | None = None
    collection: bool = False


class Filter(_DefinitionPart):
    """A condition that a resource must meet."""

    path: Text


class Constant(BaseModel):
    """A value that expressions name with `%`, with its FHIR type, for example `valueDate`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    name: Name

    @property
    def typed(self) -> tuple[str, Any]:
        """FHIR type, for example `date`, and content."""
        ((key, content),) = self._contents()
        kind = key.removeprefix("value")
        return kind[0].lower() + kind[1:], content

    def _contents(self) -> list[tuple[str, Any]]:
        extra = self.model_extra or {}
        return [(key, content) for key, content in extra.items() if key.startswith("value") and key != "value"]

    @model_validator(mode="after")
    def _require_one(self) -> Constant:
        contents = self._contents()
        if len(contents) != 1 or isinstance(contents[0][1], dict | list | None):
            raise ValueError("a constant needs one value, for example valueCode")
        return self


class Select(_DefinitionPart):
    """Columns, nested selections and unions, once or for each element of an expression."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)
    id: str | None = None
    extension: list[Any] | None = None
    column: list[ViewColumn] = []
    select: list[Select] = []
    union_all: list[Select] = []
    for_each: Text | None = None
    for_each_or_null: Text | None = None
    repeat: list[Text] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _require_one_iteration(self) -> Select:
        if sum(way is not None for way in (self.for_each, self.for_each_or_null, self.repeat)) > 1:
            raise ValueError("use one of forEach, forEachOrNull and repeat")
        return self


class ViewDefinition(_DefinitionPart):
    """One view: rows made of the resources of one type."""

    resource_type: str = Field(default="ViewDefinition", pattern="^ViewDefinition$")
    name: Name | None = None
    resource: str = Field(pattern="^[A-Z][A-Za-z]+$")
    fhir_version: list[str] | None = None
    constant: list[Constant] = []
    where: list[Filter] = []
    select: list[Select] = Field(min_length=1)

    @model_validator(mode="after")
    def _require_release(self) -> ViewDefinition:
        if self.fhir_version is not None and not any(version.startswith("4.") for version in self.fhir_version):
            raise ValueError("fhirVersion must name a version of FHIR R4, for example 4.0.1")
        return self


def parse_definition(content: Any) -> ViewDefinition:
    """Return a checked definition from parsed JSON.

    Raises:
        SourceError: it is no ViewDefinition. The text names the first wrong part.
    """
    try:
        return ViewDefinition.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the definition"
        raise SourceError(f"{place}: {first['msg']}") from None


def read_definitions(path: Path) -> list[tuple[ViewDefinition, str]]:
    """Return the definitions of a JSON file, or of a folder's JSON files by name, each with its text.

    Raises:
        SourceError: there is none, a file is no ViewDefinition, or a name is missing or used twice.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise SourceError(f"{path}: there is no ViewDefinition. Name a JSON file, or a folder of them")
    definition_of: dict[str, tuple[ViewDefinition, str]] = {}
    for file in files:
        try:
            text = file.read_text("utf-8-sig")
            definition = parse_definition(json.loads(text))
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, SourceError) else "it is no JSON in UTF-8"
            raise SourceError(f"{file.name}: {reason}") from None
        if definition.name is None:
            raise SourceError(f"{file.name}: the view needs a name, which names its table")
        # Names of tables are compared without case, as databases and file systems do.
        if definition.name.lower() in definition_of:
            raise SourceError(f"{file.name}: another view has the name {definition.name} too")
        definition_of[definition.name.lower()] = definition, text
    return list(definition_of.values())
