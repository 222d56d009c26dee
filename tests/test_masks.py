"""Masks by hand, and every way from one convention to another."""

import itertools
import math

import pytest
import torch

from mha_lab import (
    causal_mask,
    mask_from_additive,
    mask_from_blocked,
    mask_to_additive,
    mask_to_blocked,
    padding_mask,
)


@pytest.mark.parametrize(
    ("n_query", "n_key", "rows"),
    [
        (1, None, ["1"]),
        (3, None, ["100", "110", "111"]),
        (2, 5, ["11110", "11111"]),
        (5, 2, ["00", "00", "00", "10", "11"]),
    ],
)
def test_the_last_query_sees_the_last_key(n_query, n_key, rows):
    expected = torch.tensor([[digit == "1" for digit in row] for row in rows])
    assert torch.equal(causal_mask(n_query, n_key), expected)


def test_padding_by_hand():
    mask = padding_mask([2, 0, 3], max_length=5)
    assert mask.shape == (3, 1, 1, 5)
    assert mask.int()[:, 0, 0].tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_lengths_may_be_a_tensor_of_any_whole_dtype(dtype):
    lengths = torch.tensor([1, 3, 2], dtype=dtype)
    mask = padding_mask(lengths)
    assert mask.shape == (3, 1, 1, 3)  # the longest sample gives the width
    assert torch.equal(mask, padding_mask([1, 3, 2]))
    mask.zero_()
    assert lengths.tolist() == [1, 3, 2]


def test_a_mask_is_made_where_it_is_asked_for():
    assert causal_mask(2, 3, device="meta").device.type == "meta"


# Each convention: how to get there from True = may attend, and back.
CONVENTIONS = {
    "mask": (torch.clone, torch.clone),
    "blocked": (mask_to_blocked, mask_from_blocked),
    "additive": (mask_to_additive, mask_from_additive),
}
BY_HAND = {
    "mask": torch.tensor([[True, False, True], [False, False, False]]),
    "blocked": torch.tensor([[False, True, False], [True, True, True]]),
    "additive": torch.tensor([[0, -math.inf, 0], [-math.inf] * 3]),
}


@pytest.mark.parametrize(("start", "end"), list(itertools.permutations(CONVENTIONS, 2)))
def test_every_ordered_pair_of_conventions_round_trips(start, end):
    to_mask, from_mask = CONVENTIONS[start][1], CONVENTIONS[start][0]
    there = CONVENTIONS[end][0](to_mask(BY_HAND[start]))
    assert torch.equal(there, BY_HAND[end])
    back = from_mask(CONVENTIONS[end][1](there))
    assert torch.equal(back, BY_HAND[start])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_additive_masks_round_trip_in_every_dtype(dtype):
    additive = mask_to_additive(BY_HAND["mask"], dtype)
    assert additive.dtype == dtype
    assert torch.equal(additive.isinf(), BY_HAND["blocked"])
    assert torch.equal(mask_from_additive(additive), BY_HAND["mask"])


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 1, 5), (2, 0)])
def test_conversions_keep_the_shape(shape):
    mask = torch.ones(shape, dtype=torch.bool)
    for to, back in CONVENTIONS.values():
        assert back(to(mask)).shape == shape


def test_no_conversion_changes_or_shares_its_input():
    for name, (to, back) in CONVENTIONS.items():
        for convert, given in ((to, BY_HAND["mask"].clone()), (back, BY_HAND[name].clone())):
            before = given.clone()
            convert(given).zero_()
            assert torch.equal(given, before)
