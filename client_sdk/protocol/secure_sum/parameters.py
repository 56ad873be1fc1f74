"""The parameters of a masked session, built the same by whoever signs them and by whoever checks them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pydantic import ValidationError

from client_sdk.protocol.secure_sum.layout import vectors_of
from client_sdk.protocol.secure_sum.messages import Deadlines, ParameterFault, SessionParameters, require_sound
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.settings import Masking, StudySettings
from client_sdk.protocol.study.thresholds import MOST_CLIENTS, least_survivors, least_threshold
from client_sdk.protocol.wire.tensors import Spec


@dataclass(frozen=True)
class SessionPlan:
    """What both sides know of a round's session before it is opened; only its clients, its time and its name are new.

    roster, model     fingerprint of the pinned roster; digest of the model that the round starts from
    training_seconds  how long the clients may train
    vectors           planned number of clients -> what is summed; may raise ParameterFault
    """

    study: str
    round: int
    roster: str
    model: str
    masking: Masking
    training_seconds: float
    vectors: Callable[[int], tuple[VectorSpec, ...]]

    @classmethod
    def of(cls, settings: StudySettings, spec: Spec, *, study: str, round: int, roster: str, model: str) -> Self:
        """The session that a study's settings ask for.

        spec  the model's parameters

        Raises:
            ValueError: the study sums nothing under masks.
        """
        masking = settings.privacy.masking
        if masking is None:
            raise ValueError("masking: this study sums nothing under masks")
        seconds = settings.schedule.round_deadline_seconds
        return cls(study, round, roster, model, masking, seconds, lambda clients: vectors_of(settings, spec, clients))

    def parameters(self, clients: int, *, session: bytes, now: float) -> SessionParameters:
        """Sound parameters for so many planned clients: the complete graph, the least threshold, no fewer survivors
        than the study promises.

        session  32 random bytes
        now      seconds; deadlines count from it, whole seconds rounded up

        Raises:
            ParameterFault: no session of so many clients is sound.
        """
        masking = self.masking
        if not 3 <= clients <= MOST_CLIENTS:
            few = clients < 3
            raise ParameterFault(
                "too-few-clients" if few else "too-many-clients",
                f"a session has {3 if few else MOST_CLIENTS} clients at {'least' if few else 'most'}, not {clients}",
            )
        threshold = least_threshold(clients, masking.colluders)
        survivors = max(masking.min_survivors, least_survivors(clients, masking.colluders, threshold))
        if max(threshold, survivors) > clients:
            raise ParameterFault("unreachable-threshold", f"{clients} clients cannot reach {max(threshold, survivors)}")
        start, step = math.ceil(now), math.ceil(masking.step_deadline_seconds)
        # Training lies between the shares and the masked vectors.
        masked = start + 2 * step + math.ceil(self.training_seconds)
        made = SessionParameters(
            study=self.study,
            round=self.round,
            session=session,
            roster=self.roster,
            model=self.model,
            clients=clients,
            colluders=masking.colluders,
            threshold=threshold,
            neighbours=clients - 1,
            min_survivors=survivors,
            vectors=self.vectors(clients),
            deadlines=Deadlines(keys=start + step, shares=start + 2 * step, masked=masked),
            expires=masked + math.ceil(masking.expiry_seconds),
        )
        require_sound(made)
        return made

    def due(self, signed: SessionParameters) -> SessionParameters:
        """What had to be signed where these were: for as many clients, under the same name, from the same second.

        Raises:
            ParameterFault: no session of so many clients is sound.
        """
        start = signed.deadlines.keys - math.ceil(self.masking.step_deadline_seconds)
        try:
            return self.parameters(signed.clients, session=signed.session, now=start)
        except ValidationError as error:
            raise ParameterFault("unordered-deadlines", "the deadlines are no times of a study") from error
