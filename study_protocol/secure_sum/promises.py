"""The promises of a secure sum, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from study_protocol.study.masking import Masking


def sums(masking: Masking | None, hospitals: int | None = None) -> list[str]:
    """Return the promises of a study's secure sum, and what it does not promise, one sentence each.

    hospitals  of a round, as far as is known. None: the sentences hold for any number n
    """
    from study_protocol.secure_sum.messages import min_threshold

    if masking is None:
        return []
    c, k, min_survivors = masking.colluders, masking.neighbours, masking.min_survivors
    majority, every = "(n + c) // 2 + 1 of a round's n hospitals", "of its n hospitals"
    if hospitals is not None:
        majority, every = f"{min_threshold(hospitals, c)} of a round's {hospitals} hospitals", f"of its {hospitals}"
    signers = majority.partition(" of ")[0]
    shares, lost = f"all others: {majority} rebuild one", ""
    if k is not None:
        of = f"{min_threshold(k + 1, c)} of these {k + 1} rebuild one"
        shares = f"{k} neighbours on a ring: {of} (in a round of no more than {k + 1} hospitals: with all)"
        lost = f"more than {(k - c) // 2} of a hospital and its {k} neighbours are lost, or "
    never = f"the coordinator and {c} of them never get both, whatever they tell whom"
    return [
        f"{min_survivors} hospitals at least are in every sum; c = {c} may side with the coordinator, "
        f"{min_survivors - c} then do not",
        f"each shares two secrets with {shares}; {never}",
        f"{majority} sign who is in the sum before it is opened: there is only one sum",
        *([] if k is None else [f"no sum is opened that {c} of its hospitals could take apart along the ring"]),
        f"a round opens nothing where {lost}fewer than {signers} {every}, or than {min_survivors}, are left",
        "not promised: that a round ends, what the sum itself says, that other hospitals send true values",
    ]
