"""Records from which a study cannot learn, said at the hospital alone, before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Mapping

from study_protocol.study.settings import StudySettings

# Below it, a class has too few patients for any of them to stand out of the noise.
_FEW_OF_A_CLASS = 10


def remarks(settings: StudySettings, patients: int, labels: Mapping[str, int], rows: int, parameters: int) -> list[str]:
    """Return one sentence for each reason, none for records that may help.

    The noise of all rounds of this hospital alone is σ C √(d T), and its patients move the model by at most q n C T.
    If the first is larger, its update tells little.

    Args:
        patients: n, those who are trained on here.
        labels: rows of each class that is to be learnt. Empty where targets are no classes.
        rows: of all patients.
        parameters: d, of the trained model.
    """
    lines = list[str]()
    for name, count in labels.items():
        if count == rows:
            lines.append(
                f"all rows have one class ({name}): no model can learn a difference from them. Check the label"
            )
        elif count < _FEW_OF_A_CLASS <= rows / 2:
            lines.append(f"class {name} has {count} of {rows} rows: too few to be learnt from here")
    if rows < 2 * _FEW_OF_A_CLASS:
        lines.append(f"{rows} rows are too few to learn from")
    privacy = settings.privacy
    expected_batch = privacy.sampling_rate * patients
    noise = privacy.noise_multiplier * math.sqrt(parameters / privacy.max_steps)
    if expected_batch < noise:
        needed = math.ceil(noise / privacy.sampling_rate)
        lines.append(
            f"{patients} patients are few for this study: the noise of all its steps is larger than what they can "
            f"move. From about {needed} on it is not. Ask for a study with a smaller model, more steps or less noise"
        )
    return lines
