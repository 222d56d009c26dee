"""Reasons of chapter 08, each tried with the smallest experiment that could refute it."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as fused_attention
from torch.utils.flop_counter import FlopCounterMode

import mha_lab
from mha_course.chapters.cost import kept_for_backward, measure_memory
from mha_course.chapters.flash import flash_attention, merge_sums

resource = pytest.importorskip("resource")  # not on Windows


def flops(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def test_all_layers_take_the_same_flops_because_all_heads_are_as_wide_as_the_model():
    """With heads that are wider together, more heads do take more FLOPs."""
    x = torch.randn(1, 10, 24)
    by_heads = [flops(lambda h=h: mha_lab.MultiHeadAttention(24, h)(x)) for h in (1, 2, 4)]
    assert len(set(by_heads)) == 1
    wider = [flops(lambda h=h: mha_lab.MultiHeadAttention(24, h, d_k=24, d_v=24)(x)) for h in (1, 2, 4)]
    assert wider == [wider[0], 2 * wider[0], 4 * wider[0]]


@pytest.mark.parametrize("requires", [True, False])
def test_without_a_gradient_of_the_input_three_products_are_missing(requires):
    """For the sizes of the chapter: 3, or 2.39."""
    x = torch.randn(2, 30, 64, requires_grad=requires)
    layer = mha_lab.MultiHeadAttention(64, 16)
    forward = flops(lambda: layer(x))
    with FlopCounterMode(display=False) as counter:
        layer(x)[0].sum().backward()
    assert counter.get_total_flops() / forward == pytest.approx(3 if requires else 2.39, abs=0.005)


def test_the_zeros_are_in_memory_while_their_exp_is_computed():
    """If the result is written over them, the peak is that of the zeros alone."""
    size = 4 * 1000 * 1000
    assert measure_memory(lambda: torch.zeros(1000, 1000).exp()) == 2 * size
    assert measure_memory(lambda: torch.zeros(1000, 1000).exp_()) == size


def test_new_memory_brings_a_page_fault_for_each_page_and_ready_memory_none():
    """With the same softmax of the same numbers, 16 MiB or more."""
    scores = torch.randn(8, 1024, 1024)
    ready = torch.softmax(scores, dim=-1)

    def faults(run):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        kept = run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, kept

    old, _ = faults(lambda: torch.softmax(scores, dim=-1, out=ready))
    new, _ = faults(lambda: torch.softmax(scores, dim=-1))
    huge = scores.nbytes // 2**21  # pages of 2 MiB, if the system uses such
    assert new >= huge
    assert old < new / 2


def test_an_uncorrected_output_is_still_an_average():
    """Positive weights that are divided by their sum, whatever they are: it stays between the values."""
    scores, values = torch.randn(50, 6) * 3, torch.tensor([10.0, 20, 30, 40, 50, 60])
    highest = scores.view(50, 3, 2).amax(-1).cummax(-1).values.repeat_interleave(2, dim=-1)
    weights = (scores - highest).exp()  # each with the highest score up to its own block
    output, right = weights @ values / weights.sum(-1), scores.softmax(-1) @ values
    assert (output - right).abs().max() > 5
    assert output.min() >= 10
    assert output.max() <= 60


def test_uncorrected_the_keys_before_the_last_raise_get_too_much_together_and_not_each():
    """In blocks of two: the second of three rising blocks gets too little, as the first one has its share."""
    for scores in (*torch.randn(50, 6), torch.tensor([0.0, 0, 1, 1, 1.1, 1.1])):
        highest = scores.view(3, 2).amax(-1).cummax(-1).values
        if highest[0] == highest[-1]:
            continue
        uncorrected = torch.softmax(scores - highest.repeat_interleave(2), dim=0)
        more = (uncorrected - scores.softmax(0)).view(3, 2).sum(-1)
        assert more[highest < highest[-1]].sum() > 0
    assert more[0] > 0 > more[1]


def test_with_the_highest_score_first_nothing_has_to_be_corrected():
    """And with it last, the sums are."""
    value = torch.randn(4, 3)
    for scores, corrected in (
        (torch.tensor([[4.0, 1, 3, 2]]), False),
        (torch.tensor([[1.0, 2, 3, 4]]), True),
    ):
        m, total, output = (torch.full((1, 1), -torch.inf), torch.zeros(1, 1), torch.zeros(1, 3))
        for j in range(4):
            raised = torch.maximum(m, scores[:, j : j + 1])
            if j:
                assert (raised > m).item() == corrected
            m, total, output = merge_sums(
                m, total, output, scores[:, j : j + 1], torch.ones(1, 1), value[j : j + 1]
            )
        torch.testing.assert_close(output / total, scores.softmax(-1) @ value)


def test_a_number_near_the_highest_score_is_as_good_to_subtract_and_a_distant_one_is_not():
    scores, values = 300 + torch.randn(20), torch.randn(20, 5)
    right = torch.softmax(scores.double(), dim=0) @ values.double()
    for away, good in ((0, True), (20, True), (-20, True), (150, False), (-150, False)):
        weights = torch.exp(scores - scores.max() - away)
        assert torch.allclose((weights @ values / weights.sum()).double(), right, atol=1e-5) == good


def test_float32_numbers_near_300_are_3e_5_apart():
    near = torch.tensor(300.0)
    assert torch.nextafter(near, torch.tensor(torch.inf)) - near == pytest.approx(3e-5, rel=0.1)


def blocked(query, key, value, block, mask=None, *, first_fixed=True):
    """The loop of step 4, which autograd differentiates; ``first_fixed``: with the fix for empty rows."""
    so_far = None
    for start in range(0, key.shape[-2], block):
        part = slice(start, start + block)
        scores = mha_lab.scaled_dot_product_scores(query, key[..., part, :])
        if mask is not None:
            scores = scores.masked_fill(~mask[..., part], -torch.inf)
        m = scores.amax(dim=-1, keepdim=True)
        weights = (scores - (m.masked_fill(m == -torch.inf, 0) if first_fixed else m)).exp()
        new = m, weights.sum(dim=-1, keepdim=True), weights @ value[..., part, :]
        so_far = new if so_far is None else merge_sums(*so_far, *new)
    return so_far[2] / so_far[1]


@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_a_row_is_nan_exactly_if_it_sees_no_key_in_some_block(block):
    query, key, value = torch.randn(3, 5, 4)
    mask = mha_lab.causal_mask(5)
    in_each_block = torch.stack([part.any(dim=-1) for part in mask.split(block, dim=-1)]).all(dim=0)
    output = blocked(query, key, value, block, mask, first_fixed=False)
    assert torch.equal(~output.isnan().any(dim=-1), in_each_block)
    assert not blocked(query, key, value, block, mask).isnan().any()


def growth(measure, attend, n=512):
    """By what factor a number of bytes grows if ``n`` becomes four times as large: by about 4 or 16."""
    small, large = (measure(attend, *torch.randn(3, 1, 2, size, 32)) for size in (n, 4 * n))
    return large / small


def peak(attend, *inputs):
    return measure_memory(lambda: attend(*inputs))


def kept(attend, *inputs):
    return kept_for_backward(lambda: attend(*(x.clone().requires_grad_() for x in inputs)))


@pytest.mark.parametrize(
    ("attend", "squared"),
    [
        (lambda q, k, v: flash_attention(q, k, v, block=64), False),
        (lambda q, k, v: flash_attention(q, k, v, block=k.shape[-2]), True),  # one block of all keys
        (fused_attention, False),
        (lambda q, k, v: mha_lab.scaled_dot_product_attention(q, k, v)[0], True),
    ],
)
def test_the_memory_grows_like_n_because_a_block_has_a_fixed_number_of_keys(attend, squared):
    assert (growth(peak, attend) > 8) == squared


@pytest.mark.parametrize(
    ("attend", "squared"),
    [(lambda *qkv: flash_attention(*qkv, block=64), False), (lambda *qkv: blocked(*qkv, block=64), True)],
)
def test_in_training_blocks_save_memory_only_if_the_weights_are_computed_again(attend, squared):
    assert (growth(kept, attend) > 8) == squared


def test_only_math_makes_all_weights_and_without_them_the_layer_never_has_them():
    n, num_heads = 1024, 2
    weights = 4 * num_heads * n * n
    query, key, value = torch.randn(3, 1, num_heads, n, 32)
    for backend, all_weights in ((SDPBackend.MATH, True), (SDPBackend.FLASH_ATTENTION, False)):
        with sdpa_kernel(backend):
            assert (peak(fused_attention, query, key, value) >= weights) == all_weights
    layer, x = mha_lab.MultiHeadAttention(64, num_heads).requires_grad_(False), torch.randn(1, n, 64)
    for need_weights in (True, False):
        found = measure_memory(lambda need_weights=need_weights: layer(x, need_weights=need_weights))
        assert (found >= weights) == need_weights


@pytest.mark.parametrize(("highest", "left"), [(-16, 4), (-17, 1), (-18, 0)])
def test_how_many_exps_of_four_scores_float16_can_store(highest, left):
    """For scores that go down from the highest one in steps of 1."""
    found = torch.exp(torch.arange(highest, highest - 4, -1).half())
    assert found.any() == (left > 0)
    assert left != 1 or found.nonzero().flatten().tolist() == [0]


@pytest.mark.parametrize("n", [256, 512])
def test_one_more_product_in_seven_is_the_scores_again(n):
    """Whatever the length, blocks of any size take 7 products where the plain formula takes 6."""

    def both_passes(attend):
        inputs = [torch.randn(1, 2, n, 32, requires_grad=True) for _ in range(3)]
        return flops(lambda: attend(*inputs).sum().backward())

    plain = both_passes(lambda *qkv: mha_lab.scaled_dot_product_attention(*qkv)[0])
    for block in (64, n):
        again = both_passes(lambda *qkv, block=block: flash_attention(*qkv, block=block))
        assert again * 6 == plain * 7
