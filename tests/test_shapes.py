"""Public signatures state their shapes, and jaxtyping checks these while the tests run."""

import importlib
import inspect
import typing
from collections import ChainMap
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Tensor

import mha_lab

ROOT = Path(mha_lab.__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.glob("mha_*/**/*.py"))
    if "from jaxtyping import" in path.read_text(encoding="utf-8")
]
NO_TENSORS = {"from_torch", "to_torch", "extra_repr", "__init__"}


def callables():
    """Every public function of a module that states shapes, and its public classes' public methods."""
    for module in map(importlib.import_module, MODULES):
        for name, item in vars(module).items():
            if name.startswith("_") or getattr(item, "__module__", "") != module.__name__:
                continue
            if inspect.isclass(item):
                bases = [vars(base) for base in item.__mro__ if base.__module__.startswith("mha_")]
                for own, method in ChainMap(*bases).items():
                    if own in NO_TENSORS or (not own.startswith("_") and callable(method)):
                        yield f"{module.__name__}.{name}.{own}", getattr(item, own)
            elif inspect.isfunction(item):
                yield f"{module.__name__}.{name}", item


CALLABLES = dict(callables())


def mentions_a_bare_tensor(annotation):
    """``Tensor`` without a jaxtyping shape around it, anywhere inside the annotation."""
    if annotation is Tensor:
        return True
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return any(mentions_a_bare_tensor(part) for part in parts)


MANY_SHAPES = {  # parameters of all shapes in one list, or a function that compares shapes itself
    "mha_lab._inplace.applies",
    "mha_course.chapters.induction.fit",
    "mha_course.explore._model.forward",
} | {
    name for name in CALLABLES if name.startswith("mha_course.chapters.variants.") and name.endswith("parts")
}


@pytest.mark.parametrize("name", sorted(CALLABLES.keys() - MANY_SHAPES))
def test_every_argument_and_result_is_annotated_with_its_shape(name):
    signature = inspect.signature(CALLABLES[name])
    arguments = [p for n, p in signature.parameters.items() if n not in ("self", "cls")]
    for parameter in arguments:
        assert parameter.annotation is not parameter.empty, parameter
        assert not mentions_a_bare_tensor(parameter.annotation), parameter
    assert signature.return_annotation is not signature.empty
    assert not mentions_a_bare_tensor(signature.return_annotation)


def test_every_module_that_states_shapes_is_checked(pytestconfig):
    """The list in pyproject.toml leaves out the exercises, which state none and are slow to decorate."""
    checked = tuple(pytestconfig.getoption("jaxtyping_packages").split(","))
    for module in MODULES:
        assert any(f"{module}.".startswith(f"{name}.") for name in checked), module


def test_the_checker_reads_the_signatures(monkeypatch):
    """Without it, every shape in the signatures is only a comment."""
    with pytest.raises(jaxtyping.TypeCheckError):
        mha_lab.split_heads(torch.ones(2, 5, 6), "three")
    softmax = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda scores, dim: softmax(scores, dim)[..., :-1])
    with pytest.raises(jaxtyping.TypeCheckError):  # a result of the wrong shape
        mha_lab.masked_softmax(torch.ones(5, 3))
