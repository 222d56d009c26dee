"""Every public signature names its shapes, and while the tests run somebody reads them."""

import inspect
import os
import subprocess
import sys
import typing
from pathlib import Path

import jaxtyping
import pytest
from torch import Tensor, nn

import mha_lab

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("item", PUBLIC, ids=lambda item: item.__name__)
def test_a_docstring_holds_an_example_its_errors_and_what_the_formula_says(item):
    text = inspect.getdoc(item)
    assert "Raises:" in inspect.getmodule(item).__doc__
    for part in ("Args:", ">>>", "``"):
        assert part in text
    if inspect.isclass(item) or "mask_" not in item.__name__:
        assert "Source:" in text or item.__name__ == "padding_mask"
    if issubclass(item if inspect.isclass(item) else object, nn.Module):
        assert "(" in inspect.getdoc(item.forward)


WRONG = """
import torch, mha_lab.{module} as module
from jaxtyping import Float
{patch}
{call}
"""


@pytest.mark.parametrize(
    ("module", "patch", "call"),
    [
        # A result of the wrong shape, from code that is broken on purpose.
        ("heads", "", "module.split_heads(torch.ones(2, 5, 6), 'three')"),
        (
            "attention",
            "module.torch.softmax = lambda s, dim: s[..., :-1]",
            "module.masked_softmax(torch.ones(5, 3))",
        ),
        ("masks", "", "module.causal_mask(2.5)"),
    ],
)
def test_the_checker_reads_the_signatures(module, patch, call):
    """Without it, every shape in the signatures is only a comment."""
    program = (
        "from jaxtyping import install_import_hook\n"
        "install_import_hook(['mha_lab'], 'beartype.beartype')\n"
        + WRONG.format(module=module, patch=patch, call=call)
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=os.environ, check=False
    )
    assert "TypeCheckError" in done.stderr


def test_this_run_has_the_checker_on(request):
    """``make test`` runs the tests with ``--jaxtyping-packages``; a plain ``pytest`` skips this one."""
    if not request.config.getoption("--jaxtyping-packages"):
        pytest.skip("run without --jaxtyping-packages")
    with pytest.raises(jaxtyping.TypeCheckError):
        mha_lab.causal_mask("three")
