"""The accuracy to expect of a study, and warnings about its settings, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wardround.cli.lead.suggest import PLACEHOLDER

if TYPE_CHECKING:
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.suggestion import AccuracyForecast

# Why the forecast is not sure, in words.
_DOUBTS: dict[str, str] = {
    "ranges": (
        "Number columns have a range alone. If their values are skewed, the study may lose 20 points more. Give a "
        'typical range, and log for skewed values: "0..400; typical=2..40; log"'
    ),
    "classes": "Few data sets with more than two classes were measured",
    "noise": "The noise is larger than in the data sets that were measured",
}


def loose_delta(settings: StudySettings) -> list[str]:
    """Return a warning if δ is so large that whole patients could be published."""
    privacy = settings.privacy
    patients = privacy.expected_clients * privacy.expected_batch_size / privacy.sampling_rate
    delta = max((limit.delta for limit in privacy.limits if limit.level == "instance"), default=0.0)
    if delta * patients < 1:
        return []
    return [
        f"warning: delta {delta:g} is too large for {patients:,.0f} patients: publishing the records of one patient in "
        f"{1 / delta:,.0f} would keep to it. Take one well below 1 / patients"
    ]


def in_words(forecast: AccuracyForecast) -> list[str]:
    """Return the forecast in words, one sentence for each part."""
    if forecast.no_better_than_guessing:
        return [
            "accuracy: so much noise may leave nothing of the model, so that it is no better than guessing. More "
            "patients, a larger ε or fewer columns are needed"
        ]
    parted = f". If the columns tell the classes apart without error, it is up to {_points(forecast.if_parted)}"
    return [
        f"accuracy: expect to lose {_points(forecast.lost)} points against one model of all patients without privacy. "
        f"Four of five studies that were measured lost at most {_points(forecast.lost_at_most)}"
        + parted
        * (forecast.if_parted > forecast.lost_at_most),
        f"the largest hospital alone, without privacy, would lose about {_points(forecast.alone)} points if its "
        "patients are like the others'. It loses much more if they are not",
    ]


def warnings(forecast: AccuracyForecast) -> list[str]:
    """Return warnings where the model may be of no use."""
    lines: list[str] = []
    if forecast.doubts:
        reasons = ". ".join(_DOUBTS[doubt] for doubt in forecast.doubts)
        lines.append(
            f"warning: this forecast is not sure. {reasons}. Run `wardround simulate` on records of your own to see "
            "what the study loses there"
        )
    if forecast.may_be_below_alone:
        lines.append(
            "warning: a hospital alone, without privacy, may do better than this study. The study helps where "
            "hospitals see different patients, with more patients, or with a larger ε"
        )
    if forecast.may_be_below_commonest:
        lines.append(
            "warning: this model may be no better than naming the commonest class every time. The gain over it is "
            "often no larger than the loss from the noise"
        )
    elif forecast.commonest is None:
        lines.append(
            "note: the share of the commonest class is not given (--commonest 0.9). If a model without privacy is "
            f"better than naming that class by less than {_points(forecast.lost_at_most)} points, this study may be "
            "of no use"
        )
    return lines


def placeholders(settings: StudySettings) -> list[str]:
    """Return a warning if columns are those of `begun`."""
    if PLACEHOLDER not in settings.training.task_parameters.values():
        return []
    return [
        "warning: the placeholder columns have a typical range. Without it, or without log where values are skewed, a "
        "study may lose 20 points more: run `wardround plan` again with your columns"
    ]


def _points(share: float) -> str:
    return f"{100 * share:.1f}"
