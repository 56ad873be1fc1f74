"""A hospital's modifier of a Flower ClientApp: it pays, lets the app train, clips, adds noise, and only then answers.

It stands first in the list of modifiers, so that it is the last to touch an answer.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError, WardroundError
from study_protocol.randomness.source import RandomSource, SecureSource
from wardround.flower.framework import FlowerMessage, NextApp, error_reply, update_reply
from wardround.flower.hospital_charges import HospitalCharges
from wardround.flower.round_terms import RUN, PatientTraining, RoundTerms, checked_run, head_within
from wardround.flower.update_noise import UpdateNoise, fits_grid, noised_arrays

logger = logging.getLogger("wardround.flower")
# FedAvg weighs updates by it. A number of patients is no public number.
WEIGHT = "num-examples"
HomeOf = Callable[[Any], Path]


class HospitalMod:
    """The modifier of one hospital.

    A refusal depends on the round's terms, the site policy and the hospital's ledger, and on no record.

    Args:
        home: the hospital's directory, with policy.toml and ledgers. Or a function that returns it for a context of
            Flower, where one program is run for several nodes.
        dataset: name of the records, as of `wardround join --dataset`.
        study: name by which the site policy knows the runs (`studies`).
        training: the app's own private training, for rounds whose unit is a patient. The modifier cannot check that
            the app does it.
        evaluates: answer evaluations. Their metrics leave without noise and without a charge.
        weight_key: metric by which the server's strategy weighs updates.
        source: of the noise. None: a cryptographic one.
    """

    def __init__(
        self,
        home: Path | str | HomeOf,
        *,
        dataset: str = "records",
        study: str = "flower",
        training: PatientTraining | None = None,
        evaluates: bool = False,
        weight_key: str = WEIGHT,
        source: RandomSource | None = None,
    ) -> None:
        self._home_of: HomeOf = home if callable(home) else lambda _context: Path(home)
        self._dataset, self._study, self._training, self._evaluates = dataset, study, training, evaluates
        self._weight_key, self._source = weight_key, source

    def __call__(self, message: FlowerMessage, context: Any, call_next: NextApp) -> FlowerMessage:
        """Answer one message of the server."""
        kind = message.metadata.message_type.partition(".")[0]
        if kind == "evaluate" and self._evaluates:
            return call_next(message, context)
        if kind != "train":
            return error_reply(message, f"this hospital answers no messages of type {kind}")
        try:
            return self._trained(message, context, call_next)
        except WardroundError as error:
            logger.warning("this hospital takes no part in the round: %s", error)
            # The site policy's text stays here.
            return error_reply(message, f"refused: {getattr(error, 'code', type(error).__name__)}")

    def _trained(self, message: FlowerMessage, context: Any, call_next: NextApp) -> FlowerMessage:
        config = _only(message.content.config_records, "configuration")[1]
        terms, (key, received) = RoundTerms.from_config(config), _only(message.content.array_records, "arrays")
        # Copies: the app may train in the arrays that it was given.
        before = {name: np.array(values) for name, values in _arrays(received).items()}
        # Paid before the app sees the message: a training that dies half-way has read records.
        charges = HospitalCharges(self._home_of(context), self._dataset, self._study)
        run, head = checked_run(config.get(RUN, message.metadata.run_id)), head_within(config)
        noise = None if terms.unit == "patient" else _noise_of(terms, before)
        number = charges.pay(run, terms, self._training, _digest(before))
        try:
            after = _same_shapes(before, _answered(call_next(message, context)))
        # A message of the app may quote records.
        except Exception:
            logger.exception("the training failed, and its round stays charged")
            return error_reply(message, "the training failed")
        if noise is not None:
            source = self._source or SecureSource()
            after = noised_arrays(before, after, noise, source, on_grid=terms.counts_sum)
        charges.ready(run, number, _digest(after), sum(values.nbytes for values in after.values()), head)
        # No number of patients: every hospital weighs the same.
        return update_reply(message, key, after, {self._weight_key: 1.0})


def _noise_of(terms: RoundTerms, before: Mapping[str, NDArray[np.floating]]) -> UpdateNoise:
    """Return the noise of a round. Raises ConfigurationError: the received numbers are beyond its grid."""
    size = sum(values.size for values in before.values())
    noise = UpdateNoise.calibrated(terms.clip_norm, size, terms.noise_multiplier)
    if terms.counts_sum and not fits_grid(before, noise):
        raise ConfigurationError("the model's numbers are too large, or not finite, for noise that is counted together")
    return noise


def _only(records: Mapping[str, Any], kind: str) -> tuple[str, Any]:
    if len(records) != 1:
        raise ConfigurationError(f"the message has {len(records)} records of {kind}, where one is expected")
    return next(iter(records.items()))


def _arrays(record: Mapping[str, Any]) -> dict[str, NDArray[np.floating]]:
    """Return the arrays of a received record. Raises ConfigurationError: there are none, or one has no floats."""
    arrays = {name: array.numpy() for name, array in record.items()}
    wrong = [name for name, values in arrays.items() if not np.issubdtype(values.dtype, np.floating)]
    if wrong or not arrays:
        raise ConfigurationError(
            f"noise is for arrays of floats, and the model has others: {', '.join(wrong) or 'none'}"
        )
    return arrays


def _answered(reply: Any) -> dict[str, NDArray[np.floating]]:
    if reply.has_error():
        raise ValueError("the app answered with an error")
    return {name: array.numpy() for name, array in _only(reply.content.array_records, "arrays")[1].items()}


def _same_shapes(
    before: Mapping[str, NDArray[np.floating]], after: Mapping[str, NDArray[np.floating]]
) -> dict[str, NDArray[np.floating]]:
    """Return the trained arrays in the order of the received ones. Raises ValueError: these are other arrays."""
    shapes = [{name: values.shape for name, values in arrays.items()} for arrays in (before, after)]
    # Its text names no array: the app may have named one after records.
    if shapes[0] != shapes[1]:
        raise ValueError("the app answered with other arrays than it received")
    # A number beyond the type is an infinity, as one of the app's own.
    with np.errstate(over="ignore"):
        return {name: after[name].astype(values.dtype) for name, values in before.items()}


def _digest(arrays: Mapping[str, NDArray[np.floating]]) -> str:
    digest = hashlib.sha256()
    for name, values in arrays.items():
        digest.update(f"{name}\0{values.dtype.str}{values.shape}\0".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
