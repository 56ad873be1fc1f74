"""One sentence per certificate: what the number rests on."""

from __future__ import annotations

_SAMPLES = {
    "members": "the members' own records, though the run depends on them, are an independent sample",
    "held-out": "the held-out panel, declared before the first round, is an independent sample",
    "public": "the public sample is an independent sample",
}
_ADVERSARIES = {
    "path": "no round depends on what earlier rounds said about that record",
    "adaptive": "every round may depend on all earlier ones",
}


def assumption_of(estimator: str, sample: str, adversary: str, direction: str = "forward") -> str:
    """The sentence for a Bayesian certificate."""
    model = "; e^{TλD} is normal" if estimator == "student-t" else ""
    printed = "; costs are the larger of the two printed directions" if direction == "printed" else ""
    return (
        f"Assumes that the record is drawn from the population of which {_SAMPLES[sample]}{model}; "
        f"{_ADVERSARIES[adversary]}{printed}."
    )
