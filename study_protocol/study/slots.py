"""Slots: hospitals answer at multiples of one, so that the time they take does not tell how many patients they have."""

from __future__ import annotations

from study_protocol.study.any_settings import AnySettings, StatisticsSettings
from study_protocol.study.limits import MIN_SLOT

PATIENTS_PER_SECOND = 1_000
"""A slot of so many seconds is meant for that many thousand patients: a small model needs about a fortieth of it."""

SERIES = tuple(digit * 10**power for power in range(6) for digit in (1.0, 2.0, 5.0))
"""The public list, in seconds: 1, 2, 5, 10, … From it come the slots of a study that names none."""


def planned_patients(settings: AnySettings) -> float | None:
    """Return the planned patients of a typical hospital, or the records of all steps of a round if these are more.

    None: a study of queries alone plans no number.
    """
    if isinstance(settings, StatisticsSettings):
        return None
    privacy = settings.privacy
    steps = settings.training.local_steps * privacy.expected_batch_size
    return max(privacy.expected_batch_size / privacy.sampling_rate, steps)


def slot_for(patients: float | None, slots: tuple[float, ...]) -> float | None:
    """Return the shortest of these slots that is meant for so many patients, else the longest. None without slots.

    Args:
        patients: a public number, rounded up. None: the shortest slot.
    """
    seconds = 0.0 if patients is None else patients / PATIENTS_PER_SECOND
    return next((slot for slot in slots if slot >= seconds), slots[-1] if slots else None)


def default_slots(settings: AnySettings) -> tuple[float, ...]:
    """Return the public list from the slot for the planned patients on, as far as the round's deadline allows.

    It is empty if the deadline leaves no time for a slot.
    """
    deadline = settings.schedule.round_deadline_seconds
    masking = settings.privacy.masking
    shortest = deadline if masking is None else min(deadline, masking.step_deadline_seconds)
    fitting = tuple(slot for slot in SERIES if slot < shortest) or ((shortest / 2,) if shortest / 2 >= MIN_SLOT else ())
    first = slot_for(planned_patients(settings), fitting)
    return tuple(slot for slot in fitting if first is None or slot >= first)


def with_slots(settings: AnySettings) -> AnySettings:
    """Return the same settings with the default slots where they name none. Only an empty list leaves slots out."""
    if settings.schedule.slots is not None:
        return settings
    schedule = settings.schedule.model_copy(update={"slots": default_slots(settings)})
    return settings.model_copy(update={"schedule": schedule})


def planned_slot(settings: AnySettings) -> float | None:
    """Return the slot of a hospital that declares no other, or None if the study has none."""
    return slot_for(planned_patients(settings), settings.schedule.slots or ())


def notes_on_slots(settings: AnySettings, rounds: int) -> list[str]:
    """Return how long slots make so many rounds at least, and whether they fit."""
    slot, patients = planned_slot(with_slots(settings)), planned_patients(settings) or 0.0
    if slot is None:
        return ["schedule.slots is empty: the time that a hospital takes tells about how many patients it has"]
    waits = f"{rounds} rounds wait {rounds * slot:,.0f} s at least"
    lines = [f"a hospital answers at multiples of its slot, here {slot:g} s (schedule.slots): {waits}"]
    deadline = settings.schedule.round_deadline_seconds
    if slot >= deadline or slot * PATIENTS_PER_SECOND < patients:
        lines.append(
            f"a slot for {patients:,.0f} patients does not fit into schedule.slots or into "
            f"schedule.round_deadline_seconds, {deadline:g}: answers that take longer are sent at later multiples, and "
            "those tell about how many patients a hospital has"
        )
    return lines
