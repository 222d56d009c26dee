"""Reasons of chapter 04, each tried with the smallest experiment that could refute it."""

import pytest
import torch

import mha_lab

VISIBLE = torch.tensor([True, True, False])


def test_a_visible_weight_leaks_through_the_denominator():
    """A hidden score moves it if the mask comes after the softmax, and not if the sum leaves it out."""
    scores = torch.tensor([[0.3, -0.2, 0.7]])
    moved = scores + torch.tensor([0.0, 0.0, 1.0])
    after = [torch.softmax(row, dim=-1) * VISIBLE for row in (scores, moved)]
    assert not torch.allclose(after[0], after[1])
    without = [row.exp() * VISIBLE / row.exp()[:, VISIBLE].sum() for row in (scores, moved)]
    torch.testing.assert_close(without[0], without[1])
    torch.testing.assert_close(without[0], mha_lab.masked_softmax(scores, VISIBLE))


def test_the_weights_are_lost_because_float32_rounds_them_to_0():
    """The same steps in float64 are right: there, exp(-199) is not 0."""
    row = torch.tensor([[1.0, 2.0, 200.0]])
    for dtype, lost in ((torch.float32, True), (torch.float64, False)):
        late = torch.softmax(row.to(dtype), dim=-1) * VISIBLE
        assert late[0, 0].item() == (0 if lost else pytest.approx(4e-87, rel=0.1))
        assert (late / late.sum()).isnan().all().item() == lost
    torch.testing.assert_close(late / late.sum(), mha_lab.masked_softmax(row, VISIBLE).double())


def test_a_mask_with_two_axes_is_read_by_queries():
    """Five sentences of five tokens: a row of the mask goes to a query, not to a sentence."""
    layer, x = mha_lab.MultiHeadAttention(4, 2), torch.randn(5, 5, 4)
    mask = torch.arange(5) < torch.tensor([5, 3, 3, 3, 3])[:, None]
    read, by_query, by_sentence = (
        layer(x, mask=each)[1] for each in (mask, mask[None, None], mask[:, None, None])
    )
    torch.testing.assert_close(read, by_query)
    assert not torch.allclose(read, by_sentence)
    assert read[1, :, 0, 3:].min() > 0
    assert by_sentence[1, :, 0, 3:].max() == 0


def test_padding_at_the_end_is_hidden_by_the_causal_mask_alone():
    """Not at the start, and not without a causal mask."""
    is_word, causal = torch.tensor([True, True, True, False, False]), mha_lab.causal_mask(5)

    def words_that_see_padding(mask, words):
        return (mask & words[:, None] & ~words).any().item()

    assert not words_that_see_padding(causal, is_word)
    assert words_that_see_padding(causal, is_word.flip(0))
    assert words_that_see_padding(torch.ones_like(causal), is_word)


def test_one_nan_spoils_the_shared_matrix_for_all_sentences():
    """And nothing else does: with zeros in the empty row, the gradient is that of the other sentence."""
    w_v = torch.randn(4, 2, requires_grad=True)
    x, mask = torch.randn(2, 3, 4), torch.tensor([[[True]], [[False]]]).expand(2, 3, 3)
    scores = torch.randn(2, 3, 3)

    def gradient(weights, sentences):
        output = (weights @ (x @ w_v))[:sentences]
        return torch.autograd.grad(output.sum(), w_v)[0]

    spoilt = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
    whole = mha_lab.masked_softmax(scores, mask)
    assert gradient(spoilt, 2).isnan().all()
    assert gradient(spoilt, 1).isnan().all()  # the loss does not even use the empty row
    torch.testing.assert_close(gradient(whole, 2), gradient(whole, 1))
    scaler, optimiser = torch.amp.GradScaler("cpu"), torch.optim.SGD([w_v], lr=0.1)
    scaler.scale((spoilt @ (x @ w_v)).sum()).backward()
    scaler.step(optimiser)
    assert w_v.grad.isnan().all()
    assert w_v.isfinite().all()  # the gradient is NaN, but this step is left out


@pytest.mark.parametrize("put", ["nan_to_num", "where", "masked_fill"])
@pytest.mark.parametrize("added", [True, False])
def test_masked_fill_removes_the_nan_of_the_gradient_and_a_sum_keeps_it(put, added):
    """However the zeros are put in after the softmax."""
    scores, hidden = torch.randn(2, 3, requires_grad=True), torch.tensor([[False], [True]]).expand(2, 3)
    minus = torch.zeros(2, 3).masked_fill(hidden, -torch.inf)
    raw = scores + minus if added else scores.masked_fill(hidden, -torch.inf)
    found = torch.softmax(raw, dim=-1)
    weights = {
        "nan_to_num": lambda: found.nan_to_num(0.0),
        "where": lambda: torch.where(hidden, 0.0, found),
        "masked_fill": lambda: found.masked_fill(hidden, 0.0),
    }[put]()
    assert weights.isfinite().all()
    (gradient,) = torch.autograd.grad((weights * torch.randn(2, 3)).sum(), scores)
    assert gradient.isnan().any().item() == added


def test_three_outputs_stay_because_their_queries_multiply_by_0():
    """The leak of step 6: with a third number, those rows show it. Row 0 needs a value of *a*, too."""
    x = mha_lab.toy.embeddings()
    w_q, w_k, w_v = mha_lab.toy.single_head_weights()

    def changed(query, more=0):
        outputs = []
        for tokens in (x, x[[0, 1, 2, 3, 1]]):
            weights = torch.softmax(mha_lab.scaled_dot_product_scores(query, tokens @ w_k), dim=-1)
            outputs.append((weights * mha_lab.causal_mask(5)) @ (tokens @ w_v + more))
        return ((outputs[0] - outputs[1]).norm(dim=-1) > 1e-6)[:4].tolist()

    query = x @ w_q
    assert changed(query) == [False, False, True, False]
    query[:, 2] = 1
    assert changed(query) == [False, True, True, True]
    assert changed(query, more=1) == [True, True, True, True]


def test_what_a_word_sees_does_not_see_what_is_hidden_from_it():
    """So several layers reach no further than one; under a window, they do."""
    causal = mha_lab.causal_mask(6)
    is_word = torch.tensor([True, False, True, True, False, True])
    window = causal & ~causal.tril(-3)

    def two_layers(mask):
        return (mask.int() @ mask.int()) > 0

    assert torch.equal(two_layers(causal), causal)
    words = two_layers(is_word.expand(6, 6))[is_word]
    assert torch.equal(words, is_word.expand(6, 6)[is_word])
    assert not torch.equal(two_layers(window), window)


def test_dropout_changes_from_call_to_call_without_a_leak():
    layer = mha_lab.MultiHeadAttention(4, 2, dropout=0.5)
    x, causal = torch.randn(5, 4), mha_lab.causal_mask(5)
    for train, same in ((True, False), (False, True)):
        one, two = (layer.train(train)(x, mask=causal)[0] for _ in range(2))
        assert torch.equal(one, two) == same


def test_a_softmax_that_is_overwritten_has_no_gradient():
    """A change of another result, such as of a product with it, does no harm."""
    hidden = torch.tensor([False, False, True])
    scores = torch.randn(3, requires_grad=True)
    weights = torch.softmax(scores, dim=-1)
    weights[hidden] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        weights.sum().backward()
    copy = torch.softmax(scores, dim=-1).clone()
    copy[hidden] = 0
    copy.sum().backward()
    assert scores.grad.isfinite().all()


def test_what_pytorch_does_with_a_boolean_mask():
    """Subtracting it and indexing with a smaller one fail; filling with a smaller one broadcasts."""
    scores, mask = torch.randn(2, 3, 4), torch.tensor([True, True, False, False])
    with pytest.raises(RuntimeError, match="Subtraction"):
        scores - mask
    with pytest.raises(IndexError):
        scores[~mask] = -torch.inf
    filled = scores.masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(filled, torch.where(mask, scores, -torch.inf))


def test_a_large_number_added_to_a_whole_row_leaves_its_differences():
    """As long as it is not so large that float32 rounds them away: then the weights are equal."""
    row = torch.randn(1, 4)
    for low, close in ((-1e4, 1e-2), (-1e6, 1e-1)):
        torch.testing.assert_close((row + low).softmax(-1), row.softmax(-1), atol=close, rtol=0)
    torch.testing.assert_close((row - 1e9).softmax(-1), torch.full((1, 4), 0.25))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("gradients", [True, False])
def test_without_its_weights_pytorchs_layer_hides_an_empty_row_in_training(training, gradients):
    """After ``eval()`` and without gradients, it takes another way, which gives NaN."""
    layer, x = torch.nn.MultiheadAttention(4, 2, batch_first=True).train(training), torch.randn(2, 3, 4)
    hidden = torch.tensor([[True, True, True], [False, False, True]])
    with torch.set_grad_enabled(gradients):
        for need_weights in (True, False):
            output, _ = layer(x, x, x, key_padding_mask=hidden, need_weights=need_weights)
            assert output[1].isfinite().all()
            noticed = need_weights or not (training or gradients)
            assert output[0].isnan().all().item() == noticed


def test_visible_weights_keep_their_ratio_because_one_sum_divides_them():
    weights = torch.tensor([[0.1, 0.2, 0.7]])
    shares = mha_lab.masked_softmax(weights.log(), VISIBLE)
    torch.testing.assert_close(shares, torch.tensor([[0.1, 0.2, 0.0]]) / 0.3)
    low = torch.softmax(weights.log().masked_fill(~VISIBLE, -2.0), dim=-1)  # low, but not -inf
    assert low[0, 2] > 0.1


def test_only_the_leak_test_notices_that_nothing_is_hidden():
    """Shapes and sums are right for any mask, and with the causal mask nothing leaks."""
    layer, x, causal = (
        mha_lab.MultiHeadAttention(4, 2).double(),
        torch.randn(5, 4).double(),
        mha_lab.causal_mask(5),
    )
    for mask, leaks in ((causal, 0), (None, 10)):
        output, weights = layer(x, mask=mask)
        assert output.shape == (5, 4)
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 5).double())
        found = 0
        for token in range(5):
            changed = x.clone()
            changed[token] = torch.randn(4)
            moved = (layer(changed, mask=mask)[0] - output).abs().amax(dim=-1) > 1e-6
            found += (moved & ~causal[:, token]).sum().item()
        assert found == leaks


@pytest.mark.parametrize("visible", [0, 1, 3])
def test_a_query_fetches_nothing_only_if_nothing_is_visible(visible):
    mask = (torch.arange(3) < visible)[None]
    value = torch.randn(3, 2)
    output, weights = mha_lab.scaled_dot_product_attention(torch.randn(1, 4), torch.randn(3, 4), value, mask)
    assert weights.any() == output.any() == (visible > 0)
    assert weights.sum().item() == pytest.approx(float(visible > 0))


@pytest.mark.parametrize(("n_q", "n_k"), [(2, 5), (5, 5), (5, 2)])
def test_pytorchs_is_causal_counts_from_the_first_key_and_ours_from_the_last(n_q, n_k):
    fetched = torch.nn.functional.scaled_dot_product_attention(
        torch.randn(n_q, 4), torch.randn(n_k, 4), torch.eye(n_k), is_causal=True
    )
    rows, columns = torch.arange(n_q)[:, None], torch.arange(n_k)
    assert torch.equal(fetched > 0, columns <= rows)
    ours = mha_lab.causal_mask(n_q, n_k)
    assert torch.equal(ours, columns <= rows + n_k - n_q)
    assert torch.equal(ours, fetched > 0) == (n_q == n_k)


@pytest.mark.parametrize(
    ("low", "dtype", "finite"),
    [(-1e9, torch.float16, False), (-6e4, torch.float16, True), (-1e9, torch.bfloat16, True)],
)
def test_an_empty_row_is_nan_only_if_its_low_number_does_not_fit(low, dtype, finite):
    row = torch.full((3,), low).to(dtype)
    assert row.isfinite().all() == finite
    weights = torch.softmax(row, dim=-1)
    assert torch.allclose(weights, torch.full((3,), 1 / 3).to(dtype)) == finite
    assert weights.isnan().all() != finite
