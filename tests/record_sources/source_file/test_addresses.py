"""Addresses of databases: in words without a user, and refused where they hold a password or are not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from record_sources.source_file.addresses import checked_address, in_words


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://reader@db.example:5433/clinic", "postgresql clinic at db.example:5433"),
        ("mysql+pymysql://reader@db/clinic?charset=utf8mb4", "mysql clinic at db"),
        ("oracle://reader@db/?service_name=x", "oracle  at db"),
    ],
)
def test_databases_are_named_without_their_user(tmp_path: Path, url: str, place: str) -> None:
    assert in_words(checked_address(url, tmp_path)) == place


def test_a_file_has_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "clinic.db").touch()
    assert checked_address("sqlite:///clinic.db", tmp_path) == f"sqlite+pysqlite:///{tmp_path}/clinic.db"
    with pytest.raises(ValueError, match=r"there is no database file other\.db"):
        checked_address("duckdb:///other.db", tmp_path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("hunter2", "it is no address of a database"),
        ("postgresql://a:hunter2@db/x", "a password stands in the address"),
        ("postgresql://a@db/x?sslpassword=hunter2", "a password stands in the address"),
        ("sqlite:///clinic.db?key=hunter2", "nothing after a question mark"),
        ("mysql+mysqldb://a:@db/hunter2", "this database is not read"),
    ],
)
def test_a_refused_address_is_not_quoted(tmp_path: Path, url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        checked_address(url, tmp_path)
    assert "hunter2" not in str(refused.value)
