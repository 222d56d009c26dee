"""Reasons of chapter 08, each tried with the smallest experiment that could refute it."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import mha_lab
from mha_course.chapters.cost import measure_memory
from mha_course.chapters.flash import merge_sums

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
