"""Test that a class that lacks a method of its base class fails when the method is called, and does not return None."""

import inspect
from unittest.mock import MagicMock

import pytest

from retable.models import base as models
from retable.objectives import base as objectives

KINDS = [kind for module in (models, objectives) for kind in vars(module).values()
         if inspect.isclass(kind) and kind.__module__ == module.__name__]  # fmt: skip
WITH_RESULT = [method for kind in KINDS for method in vars(kind).values()
               if inspect.isfunction(method) and inspect.signature(method).return_annotation is not None]  # fmt: skip
WITH_RESULT += [models.Estimated.estimate, models.Estimated.save, models.Estimated.load, objectives.CountsWords.count]


@pytest.mark.parametrize("method", WITH_RESULT, ids=lambda method: method.__qualname__)
def test_a_method_that_a_class_lacks_is_an_error(method):
    needed = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
    with pytest.raises(NotImplementedError):
        method(*(MagicMock() for _ in needed))
