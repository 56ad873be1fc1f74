"""The parties of a study and what each sees, in sentences.

Hospitals read them before they join. Certificates print them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from study_protocol.study.any_settings import StatisticsPrivacy

if TYPE_CHECKING:
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.outside_witness import OutsideWitness

PROTECTED_UNITS = {"instance": "each patient", "client": "each hospital as a whole"}


def disclosures(settings: AnySettings, *, mine: bool) -> list[str]:
    """Return who sees what of a hospital, one sentence each.

    Args:
        mine: whether the hospital is the reader's own. Otherwise it is any hospital that takes part.
    """
    schedule = settings.schedule
    return [
        *_parties(settings, mine=mine),
        *_of_later_patients(settings, mine=mine),
        *_auditors(schedule.witnesses),
        _time_seen(schedule.slots, mine=mine),
    ]


def _of_later_patients(settings: AnySettings, *, mine: bool) -> list[str]:
    if (monitoring := settings.monitoring) is None:
        return []
    whose = "your" if mine else "each hospital's"
    return [
        # An answer about a window needs records of its data version, so that to answer says how new they are.
        f"the coordinator, of later patients: up to which window {whose} records reach",
        f"readers, of later patients: noised sums about each of {monitoring.windows} windows, the last one ends on "
        f"{monitoring.window(monitoring.windows).end}",
    ]


def _auditors(witnesses: tuple[OutsideWitness, ...]) -> list[str]:
    if not witnesses:
        return []
    names = ", ".join(witness.name for witness in witnesses)
    return [f"outside witnesses, who sign the ledger's heads ({names}): what every reader of the ledger sees"]


def _time_seen(slots: tuple[float, ...] | None, *, mine: bool) -> str:
    answers, has = ("your hospital answers", "you have") if mine else ("a hospital answers", "it has")
    if slots:
        clue = f"its slot, of {slots[0]:g} to {slots[-1]:g} s, and how many of them it took"
    else:
        clue = f"about how many patients {has}, for the study has no slots (schedule.slots)"
    return f"a person who sees when {answers}: {clue}"


def _parties(settings: AnySettings, *, mine: bool) -> list[str]:
    privacy = settings.privacy
    if isinstance(privacy, StatisticsPrivacy):
        return [
            _query_seen(masked=privacy.masking is not None, mine=mine),
            *_other_parties(mine=mine, releases="answers"),
        ]
    your, yours, place = ("your", "yours", "here") if mine else ("each hospital's", "its own", "at the hospital")
    masked = privacy.masking is not None and privacy.masking.mask_updates
    noised = f"without noise of {yours}" if privacy.rules.central else f"with noise that is added {place}"
    update = f"the sum of all hospitals' updates, {noised}" if masked else f"{your} update, {noised}"
    lines = [f"the coordinator: {update}; who takes part"]
    if privacy.bayesian is not None:
        extent = "yours alone" if mine else "each hospital's alone"
        summed = "summed under masks, or the largest of them" if privacy.masking is not None else extent
        disclosed = {
            "plain": f"{your} log-moments without noise, {summed}: the classical limit does not hold against it",
            "noised": "noised histograms of distances; their charge is in the limits",
            "at-end": f"{your} log-moments without noise, {summed}, written into the ledger when the study has ended: "
            "the classical limit does not hold against it, nor then against readers of the ledger",
        }
        lines.append(f"the coordinator: {disclosed[privacy.disclosure]}")
    if settings.statistics is None:
        return [*lines, *_other_parties(mine=mine, releases="models")]
    query = _query_seen(masked=privacy.masking is not None, mine=mine)
    return [*lines, query, *_other_parties(mine=mine, releases="models and answers")]


def _query_seen(*, masked: bool, mine: bool) -> str:
    owner = "your" if mine else "each hospital's"
    part = f"the sum of all hospitals' noised counts, never {owner} own" if masked else f"{owner} counts with noise"
    return f"the coordinator, of a query: {part}; who takes part"


def _other_parties(*, mine: bool, releases: str) -> list[str]:
    name = "your name and key, nothing of your data" if mine else "each other's names and keys, nothing of their data"
    return [f"the other hospitals: {name}", f"readers: the released {releases}"]
