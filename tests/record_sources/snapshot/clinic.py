"""Source files of one table and of histories."""

from __future__ import annotations

from pathlib import Path

from record_sources.source_file.description import SourceDescription, read_description

QUERIES = {
    "patients": "SELECT id AS patient, age FROM people",
    "visits": "SELECT person AS patient, day FROM visits",
}


def of_tables(folder: Path, queries: dict[str, str]) -> SourceDescription:
    for name, query in queries.items():
        (folder / f"{name}.sql").write_text(query)
    tables = "\n".join(f'{name} = "{name}.sql"' for name in queries)
    path = folder / "source.toml"
    path.write_text(f'[source]\nkind = "sql"\nurl = "sqlite:///clinic.db"\n[source.tables]\n{tables}\n')
    return read_description(path)


def of_people(folder: Path, extra: str = "") -> SourceDescription:
    (folder / "people.sql").write_text("SELECT id AS patient, age FROM people")
    path = folder / "one.toml"
    path.write_text(f'[source]\nkind = "sql"\nurl = "sqlite:///clinic.db"\nquery = "people.sql"\n{extra}\n')
    return read_description(path)
