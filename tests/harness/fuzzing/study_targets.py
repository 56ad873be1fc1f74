"""Parsers of the files of a study: settings, policies, questions, ledgers, certificates, models."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from accounting.budget.ledger import Entry, LedgerError, append
from client_sdk.api.questions import read_question
from client_sdk.errors import ConfigurationError, LedgerNotExtended
from client_sdk.guard.exclusion import read_exclusion_file
from client_sdk.guard.policy import SitePolicy
from client_sdk.released.model import model_of
from client_sdk.study.audit import audited, require_signed
from private_learning.tasks.task import TaskError
from study_protocol.documents import check
from study_protocol.documents.registry import as_yaml, entry
from study_protocol.study.certificate import Certificate
from study_protocol.wire.documents import load_json
from study_protocol.wire.tensors import TensorError
from study_protocol.wire.written import Unreadable, read_json, read_toml
from tests.harness.fuzzing import example_study
from tests.harness.fuzzing.target import Target, choose, chosen_seeds
from wardround.cli.officer.verify import read_export
from wardround.cli.shared.certificate_file import opened
from wardround.cli.shared.settings_file import read_any_settings

T = TypeVar("T")
_DOCS = example_study.ROOT / "docs"


def with_file(data: bytes, name: str, parse: Callable[[Path], T]) -> T:
    """Parse a file of this name with these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return parse(path)


def _parse_written(data: bytes) -> None:
    number, body = choose(data, 2)
    (read_toml, read_json)[number](body)


def _parse_settings(data: bytes) -> None:
    """Read settings. Their digest is the same when they are written and read again."""
    number, body = choose(data, 2)
    settings = with_file(body, ("study.toml", "study.json")[number], read_any_settings)
    copy = type(settings).model_validate(settings.as_json())
    assert copy.digest() == settings.digest()


def _settings_seeds() -> Iterable[bytes]:
    return chosen_seeds([(_DOCS / "study.toml").read_bytes(), example_study.messages()["StudySettings"]])


def _parse_policy(data: bytes) -> None:
    policy = with_file(data, "policy.toml", SitePolicy.read)
    policy.own_limits()
    policy.floors()
    len(str(policy.exclusions))


def _parse_objections(data: bytes) -> None:
    with_file(data, "excluded.txt", lambda path: read_exclusion_file(path, "the list"))


def _parse_question(data: bytes) -> None:
    number, body = choose(data, 2)
    document = with_file(body, ("question.toml", "question.json")[number], read_question)
    document.question.in_words()
    document.digest()


def _question_seeds() -> Iterable[bytes]:
    toml = b'kind = "count"\nnoise_multiplier = 4.0\n'
    return chosen_seeds([toml, example_study.messages()["QueryDocument"]])


def _parse_export(data: bytes) -> None:
    """Read a ledger's export and audit it, as `wardround ledger verify` does."""
    entries, statement = with_file(data, "ledger.jsonl", read_export)
    require_signed(example_study.PUBLIC_KEY, example_study.STUDY, statement.head, entries)
    audited(example_study.STUDY, entries)


def _parse_entries(data: bytes) -> None:
    """Audit entries whose hashes are made to fit, so that what lies behind the chain is reached."""
    entries: list[Entry] = []
    for line in data.splitlines()[:50]:
        value = load_json(line)
        if not isinstance(value, dict) or "sequence" not in value:
            continue
        parent = entries[-1] if entries else None
        whole = {**value, "sequence": len(entries) + 1, "previous": "0" * 64, "sha256": "0" * 64}
        entry = Entry.from_dict(whole)
        entries.append(append(parent, entry.kind, entry.round, entry.body))
    audited(example_study.STUDY, entries)


# The coordinator's own word: a title for people, and when it signed.
_FREE = {"title", "issued_at"}


def _parse_certificate(data: bytes) -> None:
    """Check a certificate, signed again where it can be, against the ledger that it names."""
    value = load_json(data)
    stated: Any = value.get("certificate") if isinstance(value, dict) else None
    document = opened(example_study.sign_again(stated) if isinstance(stated, dict) else data, "certificate.json")
    results = [check.check_signature(document, example_study.PUBLIC_KEY, "its key", is_confirmed=True)]
    results += check.check_ledger(document.certificate, example_study.entries())
    as_yaml(entry(document.certificate))
    if all(result.result == "good" for result in results):
        original, reread = (result.model_dump(mode="json") for result in (_original(), document.certificate))
        differing = {name for name in {*original, *reread} if not _are_equal(original.get(name), reread.get(name))}
        assert differing <= _FREE, f"changed and not found: {sorted(differing)}"


def _are_equal(left: Any, other: Any) -> bool:
    """Whether two values are equal, numbers up to the last bits, which another processor may round otherwise."""
    if isinstance(left, dict) and isinstance(other, dict):
        left_side, right = cast("dict[str, Any]", left), cast("dict[str, Any]", other)
        return left_side.keys() == right.keys() and all(_are_equal(left_side[name], right[name]) for name in left_side)
    if isinstance(left, list) and isinstance(other, list):
        ones, right_side = cast("list[Any]", left), cast("list[Any]", other)
        return len(ones) == len(right_side) and all(map(_are_equal, ones, right_side))
    if isinstance(left, float) and isinstance(other, float):
        return math.isclose(left, other, rel_tol=1e-9, abs_tol=1e-9)
    return type(left) is type(other) and left == other


@cache
def _original() -> Certificate:
    return opened(example_study.certificate(), "certificate.json").certificate


def _parse_model(data: bytes) -> None:
    model = model_of(data, "model.safetensors")
    assert model.sha256 == hashlib.sha256(data).hexdigest()


TARGETS: Mapping[str, Target] = {
    "written": Target(
        _parse_written, (Unreadable,), lambda: chosen_seeds([(_DOCS / "study.toml").read_bytes(), b'{"a": [1, 2.5]}'])
    ),
    "settings": Target(_parse_settings, (ConfigurationError,), _settings_seeds),
    "policy": Target(_parse_policy, (ConfigurationError,), lambda: [(_DOCS / "site-policy.toml").read_bytes()]),
    "objections": Target(
        _parse_objections, (ConfigurationError,), lambda: [b'p-1\n"p 2"\n', "\ufeffé\n".encode("utf-16")]
    ),
    "questions": Target(_parse_question, (ConfigurationError,), _question_seeds),
    "ledger-export": Target(_parse_export, (LedgerNotExtended,), lambda: [example_study.export()], seconds=30),
    "ledger-entries": Target(
        _parse_entries, (LedgerNotExtended, LedgerError, ValueError), lambda: [example_study.export()], seconds=30
    ),
    "certificates": Target(
        _parse_certificate, (ConfigurationError, ValueError), lambda: [example_study.certificate()], seconds=30
    ),
    "models": Target(_parse_model, (TensorError, ConfigurationError, TaskError), lambda: [example_study.model_file()]),
}
