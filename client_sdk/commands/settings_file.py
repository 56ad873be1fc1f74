"""A settings file with other numbers in it: what `wardround plan --solve` found, comments and all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting.plan.plan import Plan
    from client_sdk.protocol.study.settings import StudySettings


def changed_settings(settings: StudySettings, plan: Plan) -> tuple[StudySettings, dict[str, Any]]:
    """The settings whose plan this is, and the entries that differ, by their dotted names.

    Raises:
        ConfigurationError: no settings have this plan.
    """
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from client_sdk.protocol.study.plan_of import plan_of
    from client_sdk.protocol.study.settings import StudySettings
    from client_sdk.protocol.wire.wrong_entries import wrong_entries

    values = settings.as_json()
    replaced = {name: new for name, new in _entries(plan).items() if _read(values, name) != new}
    for name, new in replaced.items():
        _put(values, name, new)
    try:
        found = StudySettings.model_validate_json(json.dumps(values))
    except ValidationError as error:
        wrong = "; ".join(wrong_entries(error, StudySettings))
        raise ConfigurationError(f"no study can have the numbers that were found: {wrong}") from error
    if plan_of(found) != plan:
        raise ConfigurationError("no study can have the numbers that were found")
    return found, replaced


def write_settings(source: Path, target: Path, wanted: StudySettings, replaced: Mapping[str, Any]) -> None:
    """The file with these entries replaced; comments and order stay. What was written is read back and compared.

    Raises:
        ConfigurationError: TOML is to become JSON or the other way round, or what was written is something else.
        FileExistsError: the target is there already.
    """
    from client_sdk.commands.study import read_settings
    from client_sdk.errors import ConfigurationError

    if (source.suffix == ".json") != (target.suffix == ".json"):
        raise ConfigurationError(f"{target}: must be {'JSON' if source.suffix == '.json' else 'TOML'}, as {source} is")
    text = source.read_text(encoding="utf-8-sig")
    written = _json(text, replaced) if source.suffix == ".json" else _toml(text, replaced)
    if target.exists():
        raise FileExistsError(f"{target} exists already: name another file, or move it away")
    with target.open("x", encoding="utf-8") as file:
        file.write(written)
    if read_settings(target) != wanted:
        target.unlink()
        raise ConfigurationError(f"{source} is written in a form that could not be changed: copy the lines by hand")


def _entries(plan: Plan) -> dict[str, Any]:
    """The entries of a settings file that `--solve` may change."""
    found: dict[str, Any] = {
        "privacy.noise_multiplier": plan.noise_multiplier,
        "privacy.max_steps": plan.max_steps,
        "privacy.classical_order": plan.classical_order,
    }
    if plan.bayesian is not None:
        found["privacy.bayesian.filter_order"] = plan.bayesian.filter_order
    return found | {f"privacy.limits.{place}.epsilon": limit.epsilon for place, limit in enumerate(plan.limits)}


def _json(text: str, replaced: Mapping[str, Any]) -> str:
    values = json.loads(text)
    for name, new in replaced.items():
        _put(values, name, new)
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _toml(text: str, replaced: Mapping[str, Any]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    for name, new in replaced.items():
        _put(document, name, new)
    return tomlkit.dumps(document)


def _read(values: Any, name: str) -> Any:
    for step in name.split("."):
        values = values[int(step) if isinstance(values, list) else step]
    return values


def _put(values: Any, name: str, new: Any) -> None:
    path, _, last = name.rpartition(".")
    _read(values, path)[last] = new
