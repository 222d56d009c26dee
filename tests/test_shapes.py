"""Every public signature names its shapes, and while the tests run somebody reads them."""

import inspect
import typing
from pathlib import Path

import jaxtyping
import pytest
import torch
from torch import Tensor

import mha_lab

PUBLIC = [getattr(mha_lab, name) for name in mha_lab.__all__ if not inspect.ismodule(getattr(mha_lab, name))]
NO_TENSORS = {"from_torch", "to_torch", "extra_repr", "__init__"}


def callables():
    """Every public function, and every public method of every public class with its own code."""
    for item in PUBLIC:
        if inspect.isclass(item):
            for name, method in vars(item).items():
                if name in NO_TENSORS or (not name.startswith("_") and callable(method)):
                    yield f"{item.__name__}.{name}", getattr(item, name)
        else:
            yield item.__name__, item
    for module in (mha_lab.plot, mha_lab.toy):
        for name, item in vars(module).items():
            if inspect.isfunction(item) and not name.startswith("_") and item.__module__ == module.__name__:
                yield f"{module.__name__.split('.')[-1]}.{name}", item


CALLABLES = dict(callables())


def mentions_a_bare_tensor(annotation):
    """``Tensor`` without a jaxtyping shape around it, anywhere inside the annotation."""
    if annotation is Tensor:
        return True
    parts = annotation if isinstance(annotation, list) else typing.get_args(annotation)
    return any(mentions_a_bare_tensor(part) for part in parts)


@pytest.mark.parametrize("name", CALLABLES)
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
    for path in Path(mha_lab.__file__).parent.rglob("*.py"):
        if "from jaxtyping import" in path.read_text(encoding="utf-8"):
            module = ".".join(
                ("mha_lab", *path.relative_to(Path(mha_lab.__file__).parent).with_suffix("").parts)
            )
            assert any(f"{module}.".startswith(f"{name}.") for name in checked), module


def test_the_checker_reads_the_signatures(monkeypatch):
    """Without it, every shape in the signatures is only a comment."""
    with pytest.raises(jaxtyping.TypeCheckError):
        mha_lab.split_heads(torch.ones(2, 5, 6), "three")
    softmax = torch.softmax
    monkeypatch.setattr(torch, "softmax", lambda scores, dim: softmax(scores, dim)[..., :-1])
    with pytest.raises(jaxtyping.TypeCheckError):  # a result of the wrong shape
        mha_lab.masked_softmax(torch.ones(5, 3))
