"""Everything public is described, and as it is."""

import pytest

from bigsvm import BigSVC, Model, load_model
from bigsvm.config import PrepareOptions
from bigsvm.config.file import load_config
from bigsvm.estimator.classifier import Progress
from bigsvm.export import export
from bigsvm.inspect import inspect
from bigsvm.models.evaluation import evaluate_snapshots
from bigsvm.predict import predict
from bigsvm.preparation.pipeline import prepare
from bigsvm.stores.store import open_dataset
from tests.support.docstrings import described, gives_something, parameters, public_objects, section

# What users call themselves; the rest is the inside, told in as many words as it needs.
FUNCTIONS = [load_model, load_config, evaluate_snapshots, export, inspect, predict, prepare]
FUNCTIONS += [open_dataset]
FUNCTIONS += [
    method
    for kind in (BigSVC, Model)
    for name, method in vars(kind).items()
    if callable(method) and not name.startswith("_")
]


def test_everything_public_has_a_docstring() -> None:
    names = [name for name, thing in public_objects() if not (thing.__doc__ or "").strip()]
    assert names == []


def test_the_parameters_described_are_those_there_are() -> None:
    found = 0
    for name, thing in public_objects():
        told = described(thing.__doc__ or "", "Parameters")
        if told:
            assert told == parameters(thing), name
            found += 1
    assert found > 40


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_what_users_call_tells_what_it_takes_and_gives(function: object) -> None:
    told = described(function.__doc__ or "", "Parameters")
    assert told == parameters(function)
    assert (section(function.__doc__ or "", "Returns") is not None) == gives_something(function)


@pytest.mark.parametrize("kind", [BigSVC, PrepareOptions], ids=lambda kind: kind.__name__)
def test_the_parameters_of_a_class(kind: type) -> None:
    assert described(kind.__doc__ or "", "Parameters") == parameters(kind)


@pytest.mark.parametrize("kind", [Model, Progress], ids=lambda kind: kind.__name__)
def test_the_attributes_of_a_class(kind: type) -> None:
    assert described(kind.__doc__ or "", "Attributes") == parameters(kind)


def test_the_attributes_of_a_fitted_estimator() -> None:
    fitted = vars(BigSVC().fit([[0.0], [1.0]], [0, 1]))
    public = {name for name in fitted if name.endswith("_") and not name.startswith("_")}
    assert set(described(BigSVC.__doc__ or "", "Attributes")) == public | {
        "feature_names_in_",
        "calibration_",
        "validation_scores_",
        "coef_",
    }
