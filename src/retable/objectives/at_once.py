"""The objective of models that are estimated from all training examples at once."""

from collections.abc import Callable, Sequence
from typing import Any

from retable.models.base import Estimated
from retable.objectives.base import Objective


class AtOnce(Objective):
    """An objective for a model that is estimated without gradients; the objective has no parameters and no loss.

    Args:
        read: converts the model's label of a text to a prediction of the task.
    """

    model: Estimated

    def __init__(self, model: Estimated, read: Callable[[Any], Any] = lambda label: label):
        super().__init__()
        self.model, self._read = model, read

    def predict(self, batch: Sequence[Sequence[str]]) -> list[Any]:
        """Return one prediction for each text of the batch."""
        return [self._read(label) for label in self.model.label(batch)]
