"""Masks by hand, and every way from one convention to another."""

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
    assert causal_mask(n_query, n_key, device="meta").device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_padding_by_hand(dtype):
    lengths = torch.tensor([2, 0, 3], dtype=dtype)
    mask = padding_mask(lengths)  # the longest sample gives the width
    assert mask.int().tolist() == [[[[1, 1, 0]]], [[[0, 0, 0]]], [[[1, 1, 1]]]]
    assert torch.equal(mask, padding_mask([2, 0, 3], 3))
    assert torch.equal(padding_mask(lengths, 5), torch.nn.functional.pad(mask, (0, 2)))


MASK = torch.tensor([[True, False, True], [False, False, False]])
CONVENTIONS = {
    "blocked": (mask_to_blocked, mask_from_blocked, [[False, True, False], [True, True, True]]),
    "additive": (mask_to_additive, mask_from_additive, [[0, -math.inf, 0], [-math.inf] * 3]),
}


@pytest.mark.parametrize(("to", "back", "by_hand"), CONVENTIONS.values(), ids=CONVENTIONS)
def test_each_convention_there_and_back_by_hand(to, back, by_hand):
    """No conversion changes or shares its input, and any shape is kept."""
    mask = MASK.clone()
    there = to(mask)
    assert there.tolist() == by_hand
    again = back(there)
    assert torch.equal(again, MASK)
    again.zero_()
    assert there.tolist() == by_hand
    there.zero_()
    assert torch.equal(mask, MASK)
    for shape in ((), (3,), (2, 1, 1, 5), (2, 0)):
        assert back(to(torch.ones(shape, dtype=torch.bool))).shape == shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_additive_masks_have_every_dtype(dtype):
    additive = mask_to_additive(MASK, dtype)
    assert additive.dtype == dtype
    assert torch.equal(mask_from_additive(additive), MASK)


def test_empty_samples_alone_are_possible_if_their_width_is_known():
    assert padding_mask([0, 0], 3).tolist() == [[[[False] * 3]]] * 2
