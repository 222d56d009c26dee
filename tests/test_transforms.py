"""The package inside PyTorch's own machinery: export, function transforms, autocast."""

import ast
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap

import mha_lab
from mha_lab import (
    AdditiveScore,
    MultiHeadAttention,
    RelativePositionBias,
    SingleHeadAttention,
    scaled_dot_product_attention,
)
from tests.references import assert_close

MASK = torch.tensor([[j <= i and i != 2 for j in range(5)] for i in range(5)])


class Attend(torch.nn.Module):
    """A model around the layer, with all that it is asked for fixed, as an exporter wants it."""

    def __init__(self, layer, need_weights):
        super().__init__()
        self.layer, self.need_weights = layer, need_weights

    def forward(self, x, mask):
        found = self.layer(x, mask=mask, need_weights=self.need_weights)
        return found if self.need_weights else found[:1]


@pytest.mark.unchecked
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("score", [None, lambda: AdditiveScore(3, 7), lambda: RelativePositionBias(2, 3)])
def test_export_with_a_batch_and_a_length_that_vary(score, need_weights):
    layer = MultiHeadAttention(6, 2, score=score and score()).eval()
    batch, n = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("n", min=2, max=512)
    exported = torch.export.export(
        Attend(layer, need_weights),
        (torch.randn(3, 5, 6), torch.rand(5, 5) > 0.3),
        dynamic_shapes={"x": {0: batch, 1: n}, "mask": {0: n, 1: n}},
    ).module()
    for sizes in ((3, 5), (2, 11)):
        x, mask = torch.randn(*sizes, 6), torch.rand(sizes[1], sizes[1]) > 0.5
        mask[1] = False
        for one, other in zip(exported(x, mask), Attend(layer, need_weights)(x, mask), strict=True):
            assert_close(one, other, 1e-6)


@pytest.mark.unchecked
@pytest.mark.parametrize("grad_mode", [True, False])
def test_export_of_one_head(grad_mode):
    layer = SingleHeadAttention(6)
    x = torch.randn(2, 5, 6)
    with torch.set_grad_enabled(grad_mode):
        program = torch.export.export(layer, (x, None, MASK))
    names = {str(node.target) for node in program.graph.nodes}
    assert not [name for name in names if name.endswith((".out", "_.default"))], "writes in place"
    exported = program.module()
    for one, other in zip(exported(x, None, MASK), layer(x, None, MASK), strict=True):
        assert_close(one, other, 1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # the fused kernel has no rule
def test_vmap_over_samples_is_a_batch(need_weights):
    layer = MultiHeadAttention(6, 2)
    x, masks = torch.randn(3, 5, 6), torch.stack([MASK, ~MASK, MASK.mT])

    def one(sample, mask):
        return layer(sample, mask=mask, need_weights=need_weights)[0]

    assert_close(vmap(one)(x, masks), layer(x, mask=masks[:, None])[0], 1e-5)


def test_gradients_of_each_sample_under_vmap():
    layer = MultiHeadAttention(6, 2).double()
    x = torch.randn(3, 5, 6).double()
    parameters = dict(layer.named_parameters())

    def loss(parameters, sample):
        return functional_call(layer, parameters, (sample,), {"mask": MASK})[0].square().sum()

    each = vmap(grad(loss), (None, 0))(parameters, x)
    loss(parameters, x).backward()
    for name, parameter in parameters.items():
        assert each[name].isfinite().all()
        assert_close(each[name].sum(dim=0), parameter.grad, 1e-10)


def test_jacobian_shows_who_sees_whom():
    x = torch.randn(5, 3).double()
    jacobian = jacrev(lambda t: scaled_dot_product_attention(t, t, t, MASK)[0])(x)
    depends = (jacobian.abs().sum(dim=(1, 3)) > 0) & ~torch.eye(5, dtype=torch.bool)
    assert torch.equal(depends, MASK & ~torch.eye(5, dtype=torch.bool))


@pytest.mark.parametrize("grad_mode", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast(need_weights, grad_mode):
    layer, x = MultiHeadAttention(6, 2), torch.randn(2, 5, 6)
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grad_mode):
        output, _ = layer(x, mask=MASK, need_weights=need_weights)
        function, _ = scaled_dot_product_attention(x, x, x, MASK)
    assert function.dtype == torch.bfloat16
    assert output.dtype == torch.bfloat16
    assert_close(output.float(), layer(x, mask=MASK)[0], 0.05)


def test_no_module_of_the_package_compiles_anything():
    """``torch.compile`` needs a C++ compiler, which a learner's machine may not have."""
    for path in Path(mha_lab.__file__).parents[1].glob("mha_*/**/*.py"):
        names = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and ast.unparse(node) not in ("re.compile", "self.compile")  # the latter is IPython's
        }
        assert not names & {"compile", "jit", "script", "_dynamo", "_inductor"}, path.name
