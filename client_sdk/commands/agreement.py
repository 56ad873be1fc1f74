"""What `wardround join` shows before anything is written or sent, and the one question that it asks at a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from client_sdk.commands.shared import table

if TYPE_CHECKING:
    from client_sdk.protocol.study.settings import Masking, StudySettings
    from client_sdk.study.hospital import Proposal

_WHOM = {"instance": "each patient", "client": "each hospital as a whole"}


@dataclass(frozen=True)
class Question:
    """Called with what a study asks for. yes: nothing is asked; what the site policy forbids stays forbidden."""

    yes: bool

    def __call__(self, proposal: Proposal) -> None:
        """Show it, then ask.

        Raises:
            PolicyRefused: the site policy says no, whatever a person would say.
            NotAgreed: the person at the terminal said no.
        """
        from client_sdk.errors import NotAgreed

        table(f"Study {proposal.study}", ["", ""], terms(proposal), to_errors=True)
        proposal.require_allowed()
        if proposal.joined or self.yes or not at_a_terminal():
            return
        if not typer.confirm("Take part under these terms?", default=False, err=True):
            raise NotAgreed("not joined: nothing was sent")


def at_a_terminal() -> bool:
    """Whether there is a person who could answer."""
    return sys.stdin.isatty()


def terms(proposal: Proposal) -> list[list[str]]:
    """What a person has to know before agreeing: whom the study protects, how far, and who sees what."""
    from client_sdk.protocol.study.bounds import guaranteed_noise_multiplier

    settings, privacy = proposal.settings, proposal.settings.privacy
    protected = {limit.level for limit in privacy.limits}
    rows = [["protects", f"{level}: {_WHOM[level] if level in protected else 'nobody'}"] for level in _WHOM]
    rows += [
        [f"limit, {one.level} {one.definition}", f"epsilon {one.epsilon:g} at delta {one.delta:g}"]
        for one in privacy.limits
    ]
    rows += [
        [
            "noise",
            f"multiplier {guaranteed_noise_multiplier(settings):.3g} that is sure, at clip norm {_clips(settings)}",
        ],
        ["steps", f"at most {privacy.max_steps} with noise, in {settings.rounds} rounds"],
        *(["who sees what", line] for line in seen(settings)),
        *(["under masks", line] for line in sums(privacy.masking)),
        ["roster", "pinned" if proposal.pinned else "not pinned: nobody has compared who the other hospitals are"],
    ]
    if settings.beyond_bounds:
        rows.append(["beware", "the operator asked for limits or noise beyond the usual bounds (--i-know)"])
    return rows


def seen(settings: StudySettings) -> list[str]:
    """Who sees what of this hospital, one sentence each."""
    privacy = settings.privacy
    masked = privacy.masking is not None and privacy.masking.mask_updates
    noised = "without noise of yours" if privacy.rules.central else "with noise that is added here"
    update = f"the sum of all hospitals' updates, {noised}" if masked else f"your update, {noised}"
    lines = [f"the coordinator: {update}; who takes part"]
    if privacy.bayesian is not None:
        summed = "summed under masks, or the largest of them" if privacy.masking is not None else "yours alone"
        shown = {
            "plain": f"your log-moments without noise, {summed}: the classical limit does not hold against it",
            "noised": "noised histograms of distances; their charge is in the limits",
            "at-end": f"your log-moments without noise, {summed}, written into the ledger when the study has ended",
        }
        lines.append(f"the coordinator: {shown[privacy.disclosure]}")
    return [*lines, "the other hospitals: your name and key, nothing of your data", "readers: the released models"]


def sums(masking: Masking | None) -> list[str]:
    """What the secure sum of a study promises, and what it does not, one sentence each."""
    from client_sdk.protocol.secure_sum.messages import least_threshold

    if masking is None:
        return []
    c, k, least = masking.colluders, masking.neighbours, masking.min_survivors
    shares, lost = "all others: (n + c) // 2 + 1 of a round's n hospitals rebuild one", ""
    if k is not None:
        of = f"{least_threshold(k + 1, c)} of these {k + 1} rebuild one"
        shares = f"{k} neighbours on a ring: {of} (in a round of no more than {k + 1} hospitals: with all)"
        lost = f"more than {(k - c) // 2} of a hospital and its {k} neighbours are lost, or "
    never = f"the coordinator and {c} of them never get both, whatever they tell whom"
    return [
        f"{least} hospitals at least are in every sum; c = {c} may side with the coordinator, {least - c} then do not",
        f"each shares two secrets with {shares}; {never}",
        "(n + c) // 2 + 1 of a round's n hospitals sign who is in the sum before it is opened: there is only one sum",
        *([] if k is None else [f"no sum is opened that {c} of its hospitals could take apart along the ring"]),
        f"a round opens nothing where {lost}fewer than (n + c) // 2 + 1 of its n hospitals, or than {least}, are left",
        "not promised: that a round ends, what the sum itself says, that other hospitals send true values",
    ]


def _clips(settings: StudySettings) -> str:
    privacy = settings.privacy
    whole = "" if privacy.client_clip_norm is None else f" (whole hospital: {privacy.client_clip_norm:g})"
    return f"{privacy.clip_norm:g}{whole}"
