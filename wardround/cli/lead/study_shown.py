"""What the commands of `wardround study` print: a study in words, and how its rounds ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from study_protocol.secure_sum.promises import sums
from study_protocol.study.limit_words import spent_in_words
from study_protocol.study.reasons import HOSPITALS_MISSING, QUESTIONS_FIRST, ending
from wardround.cli.shared.shared import print_json, since, table

if TYPE_CHECKING:
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.messages import RoundView, Study


def show_study(study: Study, as_json: bool, state: str | None = None) -> None:
    from study_protocol.terms import limit_with_rule

    if as_json:
        print_json(study)
        return
    settings, privacy = study.settings, study.settings.privacy
    witness_names = [item.name for item in settings.schedule.witnesses]
    rows = [
        ["state", state or state_in_words(study)],
        ["rounds", f"{study.rounds} begun, at most {settings.rounds} of training that are charged"],
        ["hospitals", f"{enrolled(study)}. A round needs {settings.schedule.min_clients} at least"],
        ["scheme", privacy.rules.display_name],
        *_training(settings),
        *([f"limit, {limit.level} {limit.definition}", limit_with_rule(limit)] for limit in privacy.limits),
        *([["slots", f"{', '.join(f'{item:g}' for item in slots)} s"]] if (slots := settings.schedule.slots) else []),
        *([["outside witnesses", ", ".join(witness_names)]] if witness_names else []),
        *(["under masks", line] for line in sums(privacy.masking)),
        ["settings", f"sha256 {study.settings_sha256}"],
    ]
    table(f"Study {study.study}", ["", ""], rows)


def _training(settings: AnySettings) -> list[list[str]]:
    from study_protocol.study.noise_schedule import schedule_in_words
    from study_protocol.study.settings import StudySettings
    from study_protocol.terms import clip_norm_in_words, share_in_words

    rows: list[list[str]] = []
    if isinstance(settings, StudySettings):
        privacy, training = settings.privacy, settings.training
        rows = [
            ["training", f"{training.task}, {training.algorithm}, local steps: {training.local_steps}"],
            ["disclosure", privacy.disclosure],
            ["noise", f"multiplier {privacy.noise_multiplier:g} at clip norm {clip_norm_in_words(privacy)}"],
        ]
        if privacy.noise_stages is not None:
            rows.append(["noise by round", schedule_in_words(privacy.noise_stages)])
    if settings.statistics is not None:
        statistics = settings.statistics
        share = share_in_words(statistics)
        rows.append(
            ["queries", f"at most {statistics.max_queries}, each of at most {statistics.max_cells} numbers{share}"]
        )
    return rows


def state_in_words(study: Study) -> str:
    if study.pause_reason is not None and study.pause_reason.code == QUESTIONS_FIRST:
        return f"asking since {since(study.state_since)}: {study.pause_reason.detail}"
    if study.pause_reason is not None:
        return f"paused since {since(study.state_since)}: {study.pause_reason.detail}"
    if study.stop_reason is not None:
        return f"{study.state}: {ending(study.stop_reason)}"
    if study.resumed_at is not None:
        return f"{study.state}. It resumed by itself ({since(study.resumed_at)}): enough hospitals were back"
    return study.state


def after_pause(study: Study, code: str) -> str:
    paused = f"paused since {since(study.state_since)} ({code})"
    if code == QUESTIONS_FIRST:
        return f"{paused}. Begin training: wardround study train {study.study}"
    if code in HOSPITALS_MISSING:
        paused += ". It resumes by itself when enough hospitals are back"
    return f"{paused}. After the repair, run: wardround study resume {study.study}"


def enrolled(study: Study) -> str:
    return f"{study.clients} of {study.invited} invited have enrolled"


def round_row(round_view: RoundView, before: RoundView | None) -> list[str]:
    spent, past = round_view.spent or [], (before and before.spent) or []
    is_abandoned = round_view.state == "abandoned"
    # The row before may lack a limit, as that of a round under way does.
    pairs = zip_longest(spent, past[: len(spent)])
    words = ", ".join(spent_in_words(*pair, is_abandoned=is_abandoned) for pair in pairs)
    values = {} if round_view.metrics is None else round_view.metrics.values
    measured = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
    reason = round_view.reason or round_view.state
    return [str(round_view.round), reason, words, measured, "\n".join(_missing(round_view))]


def _missing(round_view: RoundView) -> Iterator[str]:
    """Yield the hospitals whose answer was not received, each with the reason."""
    for each in round_view.clients or []:
        if each.state != "received":
            yield f"{each.client}: {each.refusal.detail if each.refusal is not None else each.state}"
