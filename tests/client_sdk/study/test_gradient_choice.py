"""How gradients are found is written down before round 1: whoever starts again goes on with it, or not at all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.study import preparation
from client_sdk.study.preparation import choice_of
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.choice import GradientChoice
from private_learning.training import LocalTraining, local
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital
from tests.factories.participations import join, ledger_of, run_until_forbidden, stop_after
from tests.factories.settings import settings


def kept(directory: Path) -> GradientChoice:
    with ledger_of(directory) as ledger:
        found = choice_of(ledger.opened("sepsis"))
    assert found is not None
    return found


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """One round is done, by a method and in passes that this model would not be given now."""
    other = coordinator(settings(max_steps=2))
    stop_after(other, 1)
    with monkeypatch.context() as patch:
        patch.setattr(local, "PerRecordGradients", partial(PerRecordGradients, method="vmap", micro_batch=3))
        run_until_forbidden(hospital(other, tmp_path))
    other.meddle = None
    return other


def test_a_hospital_that_starts_again_goes_on_with_what_was_chosen(
    begun: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (kept(tmp_path).method, kept(tmp_path).micro_batch) == ("vmap", 3)
    used: list[tuple[str, int]] = []
    contribution = LocalTraining.contribution

    def seen(self: LocalTraining, *given: Any, **more: Any) -> Any:
        used.append((self._gradients.method, self._gradients.micro_batch))
        return contribution(self, *given, **more)

    monkeypatch.setattr(LocalTraining, "contribution", seen)
    join(hospital(begun, tmp_path))
    assert used == [("vmap", 3)]
    assert list(begun.updates[2]) == ["mercy"]
    # Whoever begins now is given another one.
    fresh = coordinator(settings(max_steps=1))
    join(hospital(fresh, tmp_path / "fresh"))
    assert used[1:] == [("layerwise", 128)]


@pytest.mark.quick("a closed form that is wrong now")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shapes": "(3,) torch.float32 -> () torch.float32"}, r"began with records of shapes \(3,\)"),
        ({"method": "layerwise"}, "'layerwise', which no longer works"),
        ({"method": "vmap"}, "'vmap', which no longer works"),
    ],
    ids=["other shapes", "a closed form that is wrong now", "torch.func cannot now"],
)
def test_a_hospital_for_which_the_choice_does_not_hold_any_more_takes_no_part(
    begun: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(preparation, "choice_of", lambda opened: replace(kept(tmp_path), **change))
    if "method" in change:
        from private_learning.gradients import confirmation
        from private_learning.gradients.errors import NotLayerwise

        def fails(*_: Any) -> Any:
            raise NotLayerwise("another version")

        monkeypatch.setattr(confirmation.Confirmed, "verify" if change["method"] == "layerwise" else "run", fails)
    with pytest.raises(ConfigurationError, match=words):
        join(hospital(begun, tmp_path))
    assert 2 not in begun.updates
    with ledger_of(tmp_path) as ledger:
        assert ledger.charged_round("sepsis", 2) is None
