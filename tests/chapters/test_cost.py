"""The counts against numbers worked out by hand, PyTorch's own counter, and tensors that were made."""

import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mha_course.chapters.cost import (
    Traffic,
    attention_bytes,
    attention_flops,
    growth_exponent,
    kept_for_backward,
    measure_memory,
    measure_time,
)
from mha_lab import MultiHeadAttention

BATCH, N_Q, N_K, HEADS, D_K = 3, 5, 7, 2, 11
D_MODEL = HEADS * D_K


def counted(run):
    """What PyTorch's counter sees while ``run`` runs."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("n_key", [None, N_K], ids=["self", "cross"])
def test_flops_are_those_that_pytorch_counts(n_key):
    layer = MultiHeadAttention(D_MODEL, HEADS)
    x = torch.randn(BATCH, N_Q, D_MODEL, requires_grad=True)
    context = x if n_key is None else torch.randn(BATCH, n_key, D_MODEL, requires_grad=True)
    flops = attention_flops(N_Q, D_MODEL, n_key=n_key, batch=BATCH)
    assert counted(lambda: layer(x, context)) == sum(flops)
    assert counted(lambda: layer(x, context)[0].sum().backward()) == 3 * sum(flops)
    query, key = (y.view(BATCH, -1, HEADS, D_K).transpose(1, 2) for y in (x, context))
    assert counted(lambda: query @ key.mT) == flops.scores
    assert counted(lambda: (query @ key.mT) @ key) == flops.scores + flops.weighted_sum


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_bytes_are_those_of_real_tensors(dtype):
    layer = MultiHeadAttention(D_MODEL, HEADS).to(dtype)
    x, context = (torch.randn(BATCH, n, D_MODEL, dtype=dtype) for n in (N_Q, N_K))
    sizes, options = (N_Q, D_MODEL, HEADS), {"batch": BATCH, "dtype": dtype}
    assert attention_bytes(*sizes, **options) == (x.nbytes, layer(x)[1].nbytes)
    assert attention_bytes(*sizes) == attention_bytes(*sizes, dtype=torch.float32)
    expected = (x.nbytes + context.nbytes, layer(x, context)[1].nbytes)
    assert attention_bytes(*sizes, n_key=N_K, **options) == expected


WRONG = {
    "n_query": ((0, 4, 2), {}, ValueError),
    "d_model": ((5, -1, 2), {}, ValueError),
    "num_heads": ((5, 4, 3), {}, ValueError),
    "n_key": ((5, 4, 2), {"n_key": 0}, ValueError),
    "batch": ((5, 4, 2), {"batch": 2.0}, TypeError),
    "dtype": ((5, 4, 2), {"dtype": "float32"}, TypeError),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_by_name(name):
    sizes, options, error = WRONG[name]
    with pytest.raises(error, match=f"^{name}: expected .+, got "):
        attention_bytes(*sizes, **options)
    if name not in ("num_heads", "dtype"):
        with pytest.raises(error, match=f"^{name}: expected .+, got "):
            attention_flops(*sizes[:2], **options)


X, OUT = torch.ones(2, 3, 5, dtype=torch.float64)  # 120 bytes each


def moved(run):
    with Traffic() as traffic:
        run()
    _ = X + X  # nothing is counted outside
    return traffic.bytes


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: X + X, 3 * 120),
        (lambda: X.exp(), 2 * 120),
        (lambda: X.clone().mul_(2), 2 * 120 + 2 * 120),  # in place: read, and written
        (lambda: torch.add(X, X, out=OUT), 3 * 120 + 120),  # the place of the result is read, too
        (lambda: X @ X.mT, 120 + 120 + 9 * 8),
        (lambda: X.view(5, 3).transpose(0, 1)[1:], 0),
        (lambda: X.mT.contiguous(), 2 * 120),
        (lambda: X.half(), 120 + 30),
        (lambda: X.max(dim=1), 120 + 24 + 24),
    ],
)
def test_bytes_that_are_moved_by_hand(run, expected):
    assert moved(run) == expected


def test_kept_weights_cost_more_the_longer_the_text():
    """Twice the tokens, four times the weights: by far the largest part of what is moved."""
    layer = MultiHeadAttention(6, 3)
    short, long = (moved(lambda n=n: layer(torch.zeros(1, n, 6))) for n in (300, 600))
    assert 3.5 < long / short < 4


def test_a_time_is_the_median_of_the_rounds_and_the_first_one_is_not_counted():
    calls = []
    found = measure_time(
        {"slow": lambda: time.sleep(0.02 * (calls.count("end") < 2)), "fast": lambda: None},
        rounds=3,
        finish=lambda: calls.append("end"),
    )
    assert len(calls) == 2 * (3 + 1)
    assert set(found) == {"slow", "fast"}
    assert found["slow"] < 0.01  # only its first call, which is not counted, was slow


def test_the_peak_is_of_what_is_held_at_once():
    size = 4 * 1000 * 1000
    assert measure_memory(lambda: torch.zeros(1000, 1000)) == size
    assert measure_memory(lambda: torch.zeros(1000, 1000).exp()) == 2 * size
    assert measure_memory(lambda: (torch.zeros(1000, 1000).sum(), torch.zeros(1000, 1000).sum())) < 1.1 * size
    assert measure_memory(lambda: None) == 0


def test_what_is_kept_for_backward_is_counted_once():
    x = torch.ones(3, 5, requires_grad=True)
    assert kept_for_backward(lambda: x.exp()) == 60
    assert kept_for_backward(lambda: x * x) == 60  # x twice, in one storage
    assert kept_for_backward(lambda: x + x) == 0
    assert kept_for_backward(lambda: torch.softmax(x @ x.mT, dim=-1) @ x) == 60 + 36


def test_an_exponent_is_that_of_the_power():
    assert growth_exponent([3, 5, 7], [2 * x**1.5 for x in (3, 5, 7)]) == pytest.approx(1.5)
    assert growth_exponent([1, 10], [7, 7]) == pytest.approx(0)


@pytest.mark.unchecked
def test_measurements_that_cannot_be_are_refused():
    for measure in (measure_memory, kept_for_backward):
        with pytest.raises(TypeError, match=r"^run: expected .+, got "):
            measure(None)
    with pytest.raises(TypeError, match=r"^runs\['a'\]: expected .+, got "):
        measure_time({"a": 1.0})
    with pytest.raises(ValueError, match=r"^rounds: expected .+, got 0"):
        measure_time({"a": list}, rounds=0)
    for x, y in (([1, 2], [1]), ([2, 2], [1, 3]), ([0, 1], [1, 1]), ([1, 2], [1, -1])):
        with pytest.raises(ValueError, match=r"^[xy]: expected .+, got "):
            growth_exponent(x, y)
