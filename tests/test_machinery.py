"""The layer inside what engineers put around it: compilers, exporters, adapters, other devices, files."""

import copy
import io
import math
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, stack_module_state, vmap
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from mha_course.chapters.language_model import Block, Decoder, ablate_head
from mha_course.chapters.latent import LatentAttention, attend_with_latent_cache
from mha_course.chapters.modern import group_kv_heads
from mha_course.chapters.streaming import attend_in_stream
from mha_lab import (
    AdditiveScore,
    MultiHeadAttention,
    RelativePositionBias,
    SingleHeadAttention,
    _fused,
    causal_mask,
    mask_from_additive,
    padding_mask,
)
from mha_lab.masks import sliding_window_mask
from mha_lab.positions import (
    Rotary,
    alibi_bias,
    alibi_slopes,
    rotary_frequencies,
    sinusoidal_positions,
    yarn_frequencies,
)
from mha_lab.scores import AlibiScore, QueryKeyNorm, RotaryScore, SoftcappedScore, TransformSequence
from tests.references import Shapes, assert_close, chunks, layer_with

pytestmark = pytest.mark.unchecked

Layer = partial(layer_with, 16, 4)
OPTIONS = {
    "plain": dict,
    "widths": lambda: {"d_k": 5, "d_v": 3},
    "one key and value head": lambda: {"num_kv_heads": 1},
    "groups": lambda: {"num_kv_heads": 2},
    "no bias": lambda: {"bias": False},
    "rotary": lambda: {"transform": Rotary(layout="halves")},
    "partial rotary": lambda: {"transform": Rotary(frequencies=rotary_frequencies(2))},
    "two transforms": lambda: {"transform": TransformSequence(QueryKeyNorm(4), Rotary())},
    "additive": lambda: {"score": AdditiveScore(4, 7)},
    "relative": lambda: {"score": RelativePositionBias(4, 3)},
    "alibi": lambda: {"score": AlibiScore(4)},
    "rotary score": lambda: {"score": RotaryScore()},
    "soft cap": lambda: {"score": SoftcappedScore(5.0)},
    "window": lambda: {"window": 3},
    "mask function": lambda: {"mask": chunks},
    "sinks": lambda: {"sinks": True, "num_kv_heads": 2},
    "gate": lambda: {"gate": True},
    "sequence first": lambda: {"batch_first": False},
}

FEW = "rotary", "window", "sinks"  # a graph takes a second: the others are slow
GRAPHS = [pytest.param(name, marks=() if name in FEW else pytest.mark.slow) for name in OPTIONS]


@pytest.fixture(autouse=True)
def fresh_compiler():
    """What other tests compiled does not count."""
    torch.compiler.reset()


def text(layer, batch, n):
    return torch.randn(*((batch, n) if layer.batch_first else (n, batch)), 16)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("option", GRAPHS)
def test_one_graph_for_all_lengths(option, need_weights):
    """``backend="eager"`` needs no compiler; the second length makes the sizes symbols."""
    torch._dynamo.reset()
    layer = Layer(**OPTIONS[option]()).eval()
    compiled = torch.compile(
        lambda x, mask: layer(x, mask=mask, need_weights=need_weights), backend="eager", fullgraph=True
    )
    for batch, n in ((2, 5), (2, 7), (3, 11)):
        x, mask = text(layer, batch, n), torch.rand(n, n) > 0.3
        expected = layer(x, mask=mask, need_weights=need_weights)
        for one, other in zip(compiled(x, mask), expected, strict=True):
            assert_close(one, other, 1e-5)


@pytest.mark.parametrize("option", GRAPHS)
@torch.no_grad()
def test_one_graph_for_new_tokens(option):
    torch._dynamo.reset()
    layer = Layer(**OPTIONS[option]()).eval()
    compiled = torch.compile(layer.extend, backend="eager", fullgraph=True)
    for batch in (2, 3):
        mine = other = None
        for n in (5, 1, 1, 3):
            x = text(layer, batch, n)
            (found, mine), (expected, other) = compiled(x, mine), layer.extend(x, other)
            assert_close(found, expected, 1e-5)
            assert mine.layer() is layer


class Call(nn.Module):
    def __init__(self, layer, how):
        super().__init__()
        self.layer, self.how = layer, how

    def forward(self, x):
        return tuple(part for part in self.layer(x, **self.how) if part is not None)


@pytest.mark.parametrize("how", [{"need_weights": False}, {"need_weights": False, "is_causal": True}, {}])
@pytest.mark.parametrize("option", GRAPHS)
def test_export_of_every_option(option, how):
    layer = Layer(**OPTIONS[option]()).eval()
    batch, n = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("n", min=4, max=512)
    sizes = {0: batch, 1: n} if layer.batch_first else {0: n, 1: batch}
    call = Call(layer, how)
    program = torch.export.export(call, (text(layer, 3, 5),), dynamic_shapes={"x": sizes}).module()
    for b, length in ((3, 5), (2, 11)):
        x = text(layer, b, length)
        for one, other in zip(program(x), call(x), strict=True):
            assert_close(one, other, 1e-5)


@pytest.mark.parametrize("option", OPTIONS)
def test_shapes_on_the_meta_device(option):
    with torch.device("meta"):
        layer = Layer(**OPTIONS[option]()).eval()
    x = text(layer, 2, 5).to("meta")
    for gradient in (True, False):
        with torch.set_grad_enabled(gradient), FlopCounterMode(display=False) as flops:
            output, weights = layer(x)
        assert output.shape == x.shape
        assert weights.shape == (2, 4, 5, 5)
        assert flops.get_total_flops() > 0
    assert layer.extend(x)[0].shape == x.shape
    with pytest.raises(TypeError, match=r"^query: expected the dtype of q_proj.weight"):
        layer(x.double())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("option", OPTIONS)
def test_forward_mode_differentiation(option, need_weights):
    """Outside ``torch.func``, where no gradient is asked for, nothing is written in place."""
    layer, tangent = Layer(**OPTIONS[option]()).eval().double(), torch.randn(2, 5, 16).double()
    x = torch.randn(2, 5, 16).double()
    with torch.no_grad(), forward_ad.dual_level():
        parts = layer(forward_ad.make_dual(x, tangent), need_weights=need_weights)
        found = [forward_ad.unpack_dual(part).tangent for part in parts if part is not None]
    step = 1e-6 * tangent
    both = zip(layer(x + step), layer(x - step), strict=True)
    for one, (more, less) in zip(found, both, strict=need_weights):
        assert_close(one, (more - less).detach() / 2e-6, 1e-6)


@pytest.mark.parametrize("option", OPTIONS)
def test_forward_mode_inside_functions_of_functions(option):
    layer, x = Layer(**OPTIONS[option]()).eval().double(), torch.randn(3, 16).double()
    calls = [
        lambda x, need=need: layer(x, is_causal=True, need_weights=need)[0][-1] for need in (True, False)
    ]
    expected = jacrev(calls[0])(x)
    for call in calls:
        assert_close(jacfwd(call)(x), expected, 1e-9)
    second = torch.autograd.functional.hessian(lambda x: calls[0](x).sum(), x)
    assert_close(hessian(lambda x: calls[1](x).sum())(x), second, 1e-9)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("option", GRAPHS)
def test_a_trace_holds_for_all_lengths(option, gradient):
    layer = Layer(**OPTIONS[option]()).eval()
    with torch.set_grad_enabled(gradient):
        program = torch.jit.trace(layer, text(layer, 2, 5))
        for batch, n in ((2, 5), (3, 7)):
            x = text(layer, batch, n)
            assert_close(program(x)[0], layer(x)[0], 1e-5)


def loaded(layer, x):
    file, other = io.BytesIO(), copy.deepcopy(layer).to("meta")
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), assign=True)
    return other(x)[0]


def several(layer, x):
    state, empty = stack_module_state([layer, layer]), copy.deepcopy(layer).to("meta")
    return vmap(lambda *one: functional_call(empty, one, (x,))[0])(*state)[1]


WAYS = {
    "a copy": lambda layer, x: copy.deepcopy(layer)(x)[0],
    "a file of the layer": lambda layer, x: pickle.loads(pickle.dumps(layer))(x)[0],
    "a file of its state": loaded,
    "an ensemble": several,
    "numbers kept elsewhere": lambda layer, x: checkpoint(lambda x: layer(x)[0], x, use_reentrant=False),
    "other strides": lambda layer, x: layer(x.mT.contiguous().mT)[0],
    "repeated without a copy": lambda layer, x: (
        layer(x[:1, :1].expand_as(x))[0] + layer(x)[0] - layer(x[:1, :1].repeat(*x.shape[:2], 1))[0]
    ),
}


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", OPTIONS)
def test_one_result_in_every_way(option, way, gradient):
    layer = Layer(**OPTIONS[option]()).eval()
    x = text(layer, 3, 5)
    with torch.set_grad_enabled(gradient):
        assert_close(WAYS[way](layer, x), layer(x)[0], 1e-5)


LEAD, LAST = ((), (4,), (1, 1), (3, 1), (1, 4), (3, 4)), ((1, 5), (5, 1), (1, 1), (5, 5))


@pytest.mark.parametrize("shape", [(), (1,), (5,), *((*lead, *last) for lead in LEAD for last in LAST)])
def test_masks_of_every_shape(shape):
    mask, x = torch.rand(shape) > 0.4, torch.randn(3, 5, 16)
    for option in ("plain", "groups", "window", "sinks", "soft cap"):
        layer = Layer(**OPTIONS[option]()).eval()
        for is_causal in (True, False):
            expected, weights = layer(x, mask=mask.expand(3, 4, 5, 5), is_causal=is_causal)
            seen = mask.expand(3, 4, 5, 5) & (causal_mask(5) if is_causal else torch.tensor(True))
            assert not weights[~seen].any()
            for need in (True, False):
                assert_close(layer(x, mask=mask, is_causal=is_causal, need_weights=need)[0], expected, 1e-5)
        assert_close(layer.extend(x, mask=mask)[0], layer(x, mask=mask, is_causal=True)[0], 1e-5)


@pytest.mark.parametrize("option", OPTIONS)
def test_no_samples_are_no_error(option):
    layer = Layer(**OPTIONS[option]())
    x = text(layer, 0, 5)
    for need in (True, False):
        output, _ = layer(x, need_weights=need, is_causal=True)
        output.sum().backward()
        with torch.no_grad():
            assert layer(x, need_weights=need)[0].shape == output.shape == x.shape
    assert layer.extend(x)[0].shape == x.shape


@pytest.mark.parametrize("option", OPTIONS)
def test_gradients_go_through_a_cache(option):
    layer = Layer(**OPTIONS[option]()).double()
    x = text(layer, 3, 6).double().requires_grad_()
    axis = 1 if layer.batch_first else 0
    first, cache = layer.extend(x.narrow(axis, 0, 4))
    rest, _ = layer.extend(x.narrow(axis, 4, 2), cache)
    whole = layer(x, is_causal=True)[0]
    upstream = torch.randn_like(whole)
    found = torch.autograd.grad(torch.cat([first, rest], dim=axis), x, upstream)
    assert_close(found[0], torch.autograd.grad(whole, x, upstream)[0], 1e-9)


def test_what_is_stored_in_parts_is_refused():
    layer, x = Layer(), torch.randn(2, 5, 16)
    pair = [torch.randn(3, 16), torch.randn(4, 16)]
    with pytest.raises(TypeError, match=r"^query: expected a dense tensor, got torch.sparse_coo"):
        layer(x.to_sparse())
    with pytest.raises(TypeError, match=r"^mask: expected a dense tensor, got torch.sparse_coo"):
        layer(x, mask=causal_mask(5).to_sparse())
    with pytest.raises(TypeError, match=r"^query: expected a dense tensor, got a nested one"):
        layer(torch.nested.nested_tensor(pair, layout=torch.jagged))


def loss(model, parameters, tokens):
    return functional_call(model, parameters, (tokens[None],))[0].logsumexp(-1).mean()


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # the fused kernel has no rule
def test_a_decoder_is_a_module_like_others():
    """Its check of token ids reads numbers, which these ways do not have."""
    model, tokens = Decoder(11, d_model=8, num_heads=2, max_length=16), torch.randint(11, (3, 5))
    parameters = dict(model.named_parameters())
    each = vmap(grad(partial(loss, model)), (None, 0))(parameters, tokens)
    sum(loss(model, parameters, one) for one in tokens).backward()
    for name, parameter in parameters.items():
        assert_close(each[name].sum(dim=0), parameter.grad, 1e-5)
    assert copy.deepcopy(model).to("meta")(tokens.to("meta"))[0].shape == (3, 5, 11)
    compiled = torch.compile(lambda x: model(x)[0], backend="eager", fullgraph=True)
    for n in (5, 7, 11):
        assert_close(compiled(tokens[:, :1].expand(3, n)), model(tokens[:, :1].expand(3, n))[0], 1e-5)
    program = torch.export.export(Call(model, {}), (tokens,)).module()
    assert_close(program(tokens)[0], model(tokens)[0], 1e-5)
    with pytest.raises(ValueError, match=r"^tokens: expected at least one token, from 0 to"):
        model(tokens + 11)


def test_masks_where_numbers_cannot_be_read():
    lengths, bias = torch.tensor([[2, 3], [5, 1]]), torch.tensor([0.0, -math.inf])
    expected = torch.stack([padding_mask(one, 5) for one in lengths])
    assert torch.equal(vmap(lambda one: padding_mask(one, 5))(lengths), expected)
    compiled = torch.compile(lambda x: padding_mask(x, 5), backend="eager", fullgraph=True)
    assert torch.equal(compiled(lengths[0]), expected[0])
    assert padding_mask(lengths[0].to("meta"), 5).shape == (2, 1, 1, 5)
    assert vmap(mask_from_additive)(bias[None]).tolist() == [[True, False]]
    assert torch.compile(mask_from_additive, backend="eager", fullgraph=True)(bias).tolist() == [True, False]


def wrapped(layer, name):
    setattr(layer, name, nn.Sequential(getattr(layer, name)))


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (Layer, lambda layer, x: layer(x)[0]),
        (Layer, lambda layer, x: layer.extend(x)[0]),
        (lambda: SingleHeadAttention(16), lambda layer, x: layer(x)[0]),
        (
            lambda: LatentAttention(16, 4, kv_rank=5, d_nope=4, d_rope=2),
            lambda layer, x: layer(x, absorbed=False)[0],
        ),
        (lambda: AdditiveScore(16, 7), lambda score, x: score(x, x)),
    ],
)
def test_any_module_may_stand_for_a_projection(make, call):
    """An adapter has no ``weight``, a quantized matrix one that is no tensor, or one of whole numbers."""
    layer, x = make().eval(), torch.randn(2, 5, 16)
    expected = call(layer, x)
    names = [name for name, module in layer.named_modules() if type(module) is nn.Linear]
    for name in names:
        wrapped(layer, name)
    assert_close(call(layer, x), expected, 1e-6)

    class Whole(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.weight.float() - 128)

    for name in names:
        old = layer.get_submodule(name)[0]
        new = Whole(old.in_features, old.out_features, bias=False)
        new.weight = nn.Parameter(torch.full_like(old.weight, 129).to(torch.uint8), requires_grad=False)
        setattr(layer, name, new)
    assert call(layer, x).isfinite().all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantiz.*:UserWarning")
def test_a_layer_quantized_by_pytorch():
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("PyTorch has no quantized kernels here")
    layer, x = Layer().eval(), torch.randn(2, 5, 16)
    quantized = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
    assert_close(quantized(x)[0], layer(x)[0], 0.1)


def test_a_weight_that_is_computed_is_not_written_to():
    model = Decoder(11, d_model=8, num_heads=2)
    parametrizations.weight_norm(model.blocks[1].attention.out_proj)
    with pytest.raises(TypeError, match=r"^out_proj: expected a torch.nn.Linear whose weight is a parameter"):
        ablate_head(model, 1, 0)
    for name in ("k_proj", "v_proj"):
        layer = Layer()
        parametrizations.weight_norm(getattr(layer, name))
        with pytest.raises(
            TypeError, match=rf"^layer.{name}: expected a torch.nn.Linear whose weight is a p"
        ):
            group_kv_heads(layer, 2)


PARTS = "q_proj", "k_proj", "v_proj", "out_proj"


def adapted(layer):
    for name in PARTS:
        wrapped(layer, name)


def normed(layer):
    for name in PARTS:
        parametrizations.weight_norm(getattr(layer, name))


def pruned(layer):
    for name in PARTS:
        prune.l1_unstructured(getattr(layer, name), "weight", 0.3)


def pruned_bias(layer):
    prune.random_unstructured(layer.v_proj, "bias", 0.5)


@pytest.mark.parametrize("change", [normed, pruned, pruned_bias])
def test_a_computed_weight_is_copied_to_pytorchs_layer(change):
    layer, x = Layer().eval(), torch.randn(2, 5, 16)
    change(layer)
    module = layer.to_torch()
    assert_close(module(x, x, x)[0], layer(x)[0], 1e-5)
    assert all(parameter.requires_grad for parameter in module.parameters())


def no_bias(layer):
    layer.k_proj.bias = None


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (adapted, TypeError, r"^q_proj: expected a torch.nn.Linear, got Sequential\. Merge"),
        (
            no_bias,
            ValueError,
            r"^bias: expected one in each of the four projections, or in none, got .*out_proj",
        ),
    ],
)
def test_what_pytorchs_layer_cannot_hold(change, error, text):
    layer = Layer()
    change(layer)
    with pytest.raises(error, match=text):
        layer.to_torch()


def test_an_adapter_in_pytorchs_layer_is_named():
    module = nn.MultiheadAttention(16, 4)
    wrapped(module, "out_proj")
    with pytest.raises(TypeError, match=r"^module.out_proj: expected a torch.nn.Linear, got Sequential"):
        MultiHeadAttention.from_torch(module)


@pytest.mark.parametrize("change", [adapted, normed, pruned, pruned_bias])
def test_only_parameters_are_drawn_anew(change):
    layer = Layer()
    change(layer)
    before = copy.deepcopy({name: part.detach() for name, part in layer.named_parameters()})
    with pytest.raises(TypeError, match=r"_proj: expected a torch.nn.Linear whose weight is a parameter"):
        layer.reset_parameters()
    for name, part in layer.named_parameters():
        assert torch.equal(part, before[name])


def test_a_layer_without_one_bias_starts_again():
    layer = Layer()
    no_bias(layer)
    nn.init.constant_(layer.v_proj.bias, 1.0)
    layer.reset_parameters()
    assert not layer.v_proj.bias.any()


def test_sinks_and_gate_start_again_with_their_layer():
    layer = Layer(sinks=True, gate=True)
    for parameter in layer.parameters():
        nn.init.constant_(parameter, math.nan)
    layer.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in layer.parameters())
    assert not layer.sinks.any()
    assert layer.gate_proj.weight.any()


@pytest.mark.parametrize("assign", [True, False])
def test_files_from_before_frequencies_were_kept(assign):
    theta = rotary_frequencies(4, base=500)
    layer = Layer(transform=TransformSequence(QueryKeyNorm(4), Rotary(frequencies=theta)))
    old = {name: part for name, part in layer.state_dict().items() if "frequencies" not in name}
    other = Layer(transform=TransformSequence(QueryKeyNorm(4), Rotary(frequencies=theta.clone())))
    assert other.load_state_dict(old, assign=assign).missing_keys == []
    assert torch.equal(other.transform[1].frequencies, theta)
    assert len(old) == 10
    with pytest.raises(RuntimeError, match=r"Missing key.*transform.1.frequencies"):
        other.to("meta").load_state_dict(old, assign=True)  # they have no numbers there
    with pytest.raises(RuntimeError, match=r"size mismatch for transform.frequencies"):
        Layer(transform=Rotary(frequencies=theta)).load_state_dict(
            Layer(transform=Rotary(frequencies=rotary_frequencies(2))).state_dict()
        )


N = 2 * _fused.BLOCK + 5


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("n_kept", [0, 3, _fused.BLOCK + 1])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 7},
        {"window": N},
        {"sinks": True},
        {"window": 7, "sinks": True},
        {"window": 600, "num_kv_heads": 1},
    ],
)
def test_causal_attention_needs_no_whole_mask(options, n_kept, gradient):
    layer, x = layer_with(4, 2, **options).double(), torch.randn(1, N, 4, dtype=torch.float64)
    window = options.get("window")
    mask = causal_mask(N) if window is None else sliding_window_mask(N, window=window)
    expected, _ = layer(x, mask=mask)
    with torch.set_grad_enabled(gradient), Shapes() as shapes:
        cache = layer.extend(x[:, :n_kept])[1] if n_kept else None
        found, cache = layer.extend(x[:, n_kept:], cache)
        whole, _ = layer(x, need_weights=False, is_causal=True)
    assert_close(found, expected[:, n_kept:], 1e-12)
    assert_close(whole, expected, 1e-12)
    assert max(math.prod(shape) for shape in shapes.seen) <= (_fused.BLOCK + 1) * (N + 1)
    assert_close(layer(x, is_causal=True)[0], expected, 1e-12)
    upstream = torch.randn_like(expected)
    if gradient:
        for mine, other in zip(
            torch.autograd.grad(whole, layer.parameters(), upstream, allow_unused=True),
            torch.autograd.grad(expected, layer.parameters(), upstream, allow_unused=True),
            strict=True,
        ):
            assert_close(mine, other, 1e-9)


def test_causal_attention_with_sinks_needs_no_mask_at_all():
    layer = layer_with(4, 2, sinks=True)
    with torch.no_grad(), Shapes() as shapes:
        layer(torch.randn(1, N, 4), need_weights=False, is_causal=True)
    assert max(math.prod(shape) for shape in shapes.seen) <= 3 * 5 * (N + 1)


@pytest.mark.parametrize("options", [{}, {"sinks": True}])
def test_a_gradient_keeps_keys_and_values_once(options):
    """Beside a mask, the kernel gets some queries at a time, but all of them share the stored keys."""
    layer, mask = layer_with(4, 2, **options), torch.rand(N, N) > 0.5
    kept = {}
    pack = lambda x: kept.update({x.untyped_storage().data_ptr(): x}) or x  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        layer(torch.randn(1, N, 4), mask=mask, need_weights=False)
    assert sum(x.ndim == 4 and x.shape[-2] == N + len(options) for x in kept.values()) == 2


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_mask_beside_is_causal(need_weights):
    layer, x, y = Layer().double(), torch.randn(2, N, 16).double(), torch.randn(2, N + 3, 16).double()
    keys, rows = torch.rand(2, 1, 1, N + 3) > 0.2, torch.rand(N, N + 3) > 0.9
    for mask in (keys, rows, keys & rows):
        expected, _ = layer(x, y, mask=mask & causal_mask(N, N + 3))
        assert_close(layer(x, y, None, mask, is_causal=True, need_weights=need_weights)[0], expected, 1e-12)
        assert_close(layer(x, y, None, mask, need_weights=False)[0], layer(x, y, mask=mask)[0], 1e-12)
    few = layer(y, x, is_causal=True, need_weights=need_weights)[0]  # the first queries see nothing
    assert_close(few, layer(y, x, mask=causal_mask(N + 3, N))[0], 1e-12)


def test_a_shorter_prompt_has_padding_before_it():
    layer = Layer(window=6, transform=Rotary()).double()
    one, other = torch.randn(1, 9, 16).double(), torch.randn(1, 6, 16).double()
    padded = torch.cat([one, torch.cat([torch.zeros(1, 3, 16).double(), other], dim=1)])
    real = torch.arange(9) >= torch.tensor([[0], [3]])
    outputs, cache = [], None
    for start, stop in ((0, 5), (5, 8), (8, 9)):
        seen = real[:, None, None, :stop]
        output, cache = layer.extend(padded[:, start:stop], cache, mask=seen)
        outputs.append(output)
    found = torch.cat(outputs, dim=1)
    assert_close(found[:1], layer(one)[0], 1e-12)
    assert_close(found[1:, 3:], layer(other)[0], 1e-12)
    with pytest.raises(ValueError, match=r"^mask: expected a shape that broadcasts to .+ \(2, 4, 1, 10\)"):
        layer.extend(padded[:, :1], cache, mask=seen)


def test_a_mask_that_is_a_module_is_copied_and_trained_with_the_layer():
    class Reach(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("reach", torch.tensor(2))

        def forward(self, n_query, n_key, *, device):
            return causal_mask(n_query, n_key, device=device).triu(n_key - n_query - int(self.reach))

    layer, x = Layer(mask=Reach()), torch.randn(2, 7, 16)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(Layer(mask=chunks)))):
        assert again(x)[0].shape == (2, 7, 16)
    assert "mask.reach" in layer.state_dict()
    assert_close(layer(x)[0], layer.extend(x)[0], 1e-6)
    assert_close(copy.deepcopy(layer)(x)[0], layer(x)[0], 0)


def test_a_window_keeps_its_own_numbers_only():
    layer = Layer(window=3)
    _, cache = layer.extend(torch.randn(1, 100, 16))
    for _ in range(3):
        for part in cache[:2]:
            assert part.untyped_storage().nbytes() == 3 * 16 * 4
        _, cache = layer.extend(torch.randn(1, 1, 16), cache)


LATENT = {"kv_rank": 5, "d_nope": 4, "d_rope": 2}


@pytest.mark.parametrize(
    ("make", "step"),
    [
        (Layer, lambda layer, x, cache: layer.extend(x, cache)),
        (partial(Layer, window=2), lambda layer, x, cache: layer.extend(x, cache)),
        (Layer, lambda layer, x, cache: attend_in_stream(layer, x, cache, recent=4)),
        (partial(LatentAttention, 16, 4, **LATENT), attend_with_latent_cache),
    ],
)
def test_a_cache_goes_through_a_file(make, step):
    layer, x = make(), torch.randn(2, 1, 16)
    _, cache = step(layer, x, None)
    for copied in (copy.copy(cache), copy.deepcopy(cache._replace(**detached(cache)))):
        assert copied.layer() is layer
        with pytest.raises(ValueError, match=r"^caches?: expected a cache of this layer"):
            step(make(), x, copied)
    file = io.BytesIO()
    torch.save(cache, file)
    file.seek(0)
    for kept in (pickle.loads(pickle.dumps(cache)), torch.load(file)):
        assert kept.layer is None
        assert_close(step(layer, x, kept)[0], step(layer, x, cache)[0], 1e-7)
    other = make()
    other.load_state_dict(layer.state_dict())
    assert_close(step(other, x, kept)[0], step(layer, x, cache)[0], 1e-7)


def detached(cache):
    return {name: getattr(cache, name).detach() for name in cache._fields[:2]}


@pytest.mark.parametrize("option", OPTIONS)
def test_made_on_meta_and_started_elsewhere(option):
    """As a trainer of large models does it: each module draws its own parameters."""
    layer = Layer(**OPTIONS[option](), device="meta") if "bias" not in option else Layer(device="meta")
    if layer.transform is None and layer.score is None:
        layer.to_empty(device="cpu")
        for parameter in layer.parameters():
            nn.init.constant_(parameter, math.nan)
        layer.apply(lambda module: getattr(module, "reset_parameters", lambda: None)())
        assert layer(text(layer, 2, 5))[0].isfinite().all()
        assert not layer.out_proj.bias.any()
        bound = (6 / (16 + layer.q_proj.out_features)) ** 0.5
        assert 0.8 * bound < layer.q_proj.weight.abs().max() <= bound
    assert Layer(dtype=torch.float64, sinks=True, gate=True)(torch.randn(2, 5, 16).double())[0].dtype == (
        torch.float64
    )


def test_the_parts_with_starts_of_their_own_can_start_again():
    model = Decoder(11, d_model=8, num_heads=2)
    start = model.position_embedding.weight.clone()
    bias = RelativePositionBias(4, 3)
    for parameter in (*model.parameters(), *bias.parameters()):
        nn.init.constant_(parameter, math.nan)
    for one in (model, bias):
        one.apply(lambda module: getattr(module, "reset_parameters", lambda: None)())
        for parameter in one.parameters():
            assert parameter.isfinite().all()
    assert torch.equal(model.position_embedding.weight, start)
    assert 0.05 < model.token_embedding.weight.std() < 0.2


def test_frequencies_are_kept_moved_and_not_rounded():
    theta = rotary_frequencies(4, base=500)
    layer = Layer(transform=Rotary(frequencies=theta)).half().bfloat16()
    assert layer.transform.frequencies.dtype == torch.float32
    assert torch.equal(layer.transform.frequencies, theta)
    assert layer.state_dict()["transform.frequencies"] is not None
    with torch.device("meta"):
        empty = Layer(transform=Rotary(frequencies=rotary_frequencies(4)))
    empty.to_empty(device="cpu").load_state_dict(layer.state_dict())
    assert torch.equal(empty.transform.frequencies, theta)


@pytest.mark.parametrize("frozen", [[], ["out_proj"], ["in_proj", "out_proj"]])
@pytest.mark.parametrize("kdim", [None, 7])
def test_what_is_frozen_stays_frozen(kdim, frozen):
    module = nn.MultiheadAttention(6, 2, kdim=kdim)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not any(part in name for part in frozen))
    layer = MultiHeadAttention.from_torch(module)
    assert layer.out_proj.weight.requires_grad == module.out_proj.weight.requires_grad
    again = {name: parameter.requires_grad for name, parameter in layer.to_torch().named_parameters()}
    assert again == {name: parameter.requires_grad for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_large_sink_in_half_precision(is_causal):
    """``sink / scale`` would be infinite; both ways give the same numbers."""
    layer, x = Layer(sinks=True, d_k=64).half(), torch.randn(2, 5, 16).half()
    nn.init.constant_(layer.sinks, 30000.0)
    with torch.no_grad():
        expected, fused = (layer(x, need_weights=need, is_causal=is_causal)[0] for need in (True, False))
    assert fused.isfinite().all()
    assert_close(fused, expected, 1e-3)


def test_numbers_of_numpy_are_numbers():
    np = pytest.importorskip("numpy")
    layer = MultiHeadAttention(np.int64(16), np.int32(4), num_kv_heads=np.int64(2), dropout=np.float32(0.5))
    assert {type(size) for size in (layer.d_model, layer.num_heads, layer.d_k, layer.num_kv_heads)} == {int}
    assert type(layer.dropout) is float
    assert layer(torch.randn(2, 5, 16))[0].shape == (2, 5, 16)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: alibi_bias(4, 3, dtype=torch.int64), "dtype: expected a floating-point torch.dtype"),
        (lambda: alibi_slopes(4, dtype="float32"), "dtype: expected a floating-point torch.dtype"),
        (lambda: sinusoidal_positions(3, 4, dtype=torch.int64), "dtype: expected a floating-point torch.d"),
        (lambda: rotary_frequencies(4, dtype=torch.long), "dtype: expected a floating-point torch.dtype"),
        (
            lambda: yarn_frequencies(4, 2, 9, dtype=torch.int32),
            "dtype: expected a floating-point torch.dtype",
        ),
        (lambda: Layer(dtype=torch.complex64), "dtype: expected a floating-point torch.dtype"),
        (lambda: QueryKeyNorm(4, eps="small"), "eps: expected a number, got str"),
        (lambda: QueryKeyNorm(4, eps=-1.0), "eps: expected at least 0, got -1.0"),
        (
            lambda: Block(Layer())(torch.randn(2, 5, 16), causal="no"),
            "causal: expected True or False, got 'no'",
        ),
        (
            lambda: Decoder(5)(torch.zeros(1, 2).long(), causal="no"),
            "causal: expected True or False, got 'no'",
        ),
    ],
)
def test_options_of_a_wrong_kind(call, text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        call()
