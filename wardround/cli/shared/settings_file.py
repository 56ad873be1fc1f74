"""Settings files: read them with every wrong entry named, or write them with changed numbers and all comments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from wardround.cli.shared.output import require_writable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from accounting.plan.plan import Plan
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.settings import StudySettings

_MAY_BE_NULL = ("bayesian", "client_clip_norm", "histogram_noise", "masking", "accounting_sample")


def read_settings(path: Path) -> StudySettings:
    """Return the settings of a study that trains, from JSON or TOML.

    Raises:
        ConfigurationError: the file is neither of the two, or no study. The message names every wrong entry, no value.
        OSError: no such file.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.study.any_settings import StatisticsSettings

    settings = read_any_settings(path)
    if isinstance(settings, StatisticsSettings):
        raise ConfigurationError(
            f"{path} is of a study of queries alone (scheme statistics), which does not train. Its cost: `wardround "
            "ask STUDY FILE --plan`, or `wardround synth FILE --plan` for synthetic records"
        )
    return settings


def read_any_settings(path: Path) -> AnySettings:
    """Return the settings of any study, from JSON or TOML. Raises as `read_settings`."""
    return _read_text(path, path.read_bytes())


def _read_text(path: Path, written: bytes) -> AnySettings:
    """Return the settings in the text of a file. Raises ConfigurationError as `read_settings`."""
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from study_protocol.study.any_settings import StatisticsSettings, trains
    from study_protocol.study.settings import StudySettings
    from study_protocol.wire.written import read_json, read_toml
    from study_protocol.wire.wrong_entries import wrong_entries

    kind, read = ("JSON", read_json) if path.suffix == ".json" else ("TOML", read_toml)
    form: type[StudySettings | StatisticsSettings] = StudySettings
    try:
        values: dict[str, Any] = read(written)
        if values == {}:
            raise ConfigurationError(f"{path} is empty: `wardround study template -o FILE` writes one to begin with")
        form = StudySettings if trains(values) else StatisticsSettings
        filled_values = values if kind == "JSON" else filled(values, form)
        return form.model_validate_json(json.dumps(filled_values, default=_day_as_text))
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, form))
        raise ConfigurationError(f"{path} is not a study:\n{wrong}") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path} is no {kind} of a study: it is nested too deeply") from error
    except TypeError as error:
        raise ConfigurationError(f"{path} is not a study: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path} is no {kind}: {error}") from error


def _day_as_text(value: object) -> str:
    """Return a date of TOML as JSON has it. Raises TypeError for a time, which no setting is."""
    if type(value) is date:
        return value.isoformat()
    raise TypeError("a time of day stands in it, which no entry takes")


def filled(values: dict[str, Any], form: type[BaseModel]) -> dict[str, Any]:
    """Return the values with null for entries that are left out, because TOML has no null."""
    from study_protocol.study.settings import StudySettings

    privacy = values.get("privacy")
    # A value that should be a table is reported with the other wrong entries.
    if isinstance(privacy, dict):
        for name in _MAY_BE_NULL if form is StudySettings else ("masking",):
            cast("dict[str, Any]", privacy).setdefault(name, None)
        if isinstance(masking := cast("dict[str, Any]", privacy)["masking"], dict):
            cast("dict[str, Any]", masking).setdefault("neighbours", None)
    return values


def changed_settings(settings: StudySettings, plan: Plan) -> tuple[StudySettings, dict[str, Any]]:
    """Return the settings with this plan, and the entries that differ, by their dotted names.

    Raises:
        ConfigurationError: no settings have this plan.
    """
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from study_protocol.study.plan_of import plan_of
    from study_protocol.study.settings import StudySettings
    from study_protocol.wire.wrong_entries import wrong_entries

    values = settings.as_json()
    replaced = {name: new for name, new in _entries(plan).items() if _read_or_none(values, name) != new}
    for name, new in replaced.items():
        _put(values, name, new)
    try:
        changed = StudySettings.model_validate_json(json.dumps(values))
    except ValidationError as error:
        wrong = "; ".join(wrong_entries(error, StudySettings))
        raise ConfigurationError(f"no study can have the numbers that were found: {wrong}") from error
    if plan_of(changed) != plan:
        raise ConfigurationError("no study can have the numbers that were found")
    return changed, replaced


def write_settings(source: Path, target: Path, settings: StudySettings, replaced: Mapping[str, Any]) -> None:
    """Write the file with these entries replaced. Comments and order stay. The target is complete or absent.

    Raises:
        ConfigurationError: source and target are not both TOML or both JSON, or the result would have other settings.
        OSError: the target exists, is a link, or cannot be written.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.files.durable import write_durably

    if (source.suffix == ".json") != (target.suffix == ".json"):
        raise ConfigurationError(f"{target}: must be {'JSON' if source.suffix == '.json' else 'TOML'}, as {source} is")
    text = source.read_bytes().decode("utf-8-sig")
    written = (_json(text, replaced) if source.suffix == ".json" else _toml(text, replaced)).encode()
    if _read_text(target, written) != settings:
        raise ConfigurationError(f"{source} is written in a form that could not be changed: copy the lines by hand")
    require_writable(target)
    write_durably(target, written, mode=0o666)


def _entries(plan: Plan) -> dict[str, Any]:
    """Return the entries of a settings file that `--solve` may change."""
    entries: dict[str, Any] = {
        "privacy.noise_multiplier": plan.noise_multiplier,
        "privacy.max_steps": plan.max_steps,
        "privacy.classical_order": plan.classical_order,
    }
    if plan.bayesian is not None:
        entries["privacy.bayesian.filter_order"] = plan.bayesian.filter_order
    for place, limit in enumerate(plan.limits):
        entries[f"privacy.limits.{place}.epsilon"] = limit.epsilon
        entries[f"privacy.limits.{place}.enforcement"] = limit.enforcement
    if plan.queries is not None:
        entries["statistics.share"] = plan.queries.share
    return entries


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


def _read_or_none(values: Any, name: str) -> Any:
    """None: the entry is left out."""
    path, _, last = name.rpartition(".")
    return _read(values, path).get(last)


def _put(values: Any, name: str, new: Any) -> None:
    path, _, last = name.rpartition(".")
    _read(values, path)[last] = new
