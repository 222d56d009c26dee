"""Questions of chapter 04: what a mask leaves visible, and where a wrong one leaks."""

import torch

import mha_lab
from mha_course.quiz import Idea, Question, from_mistakes, vector


def share_of_visible_keys(rng):
    """What hiding some keys does to the weights of the others."""
    tenths, visible = [1, 2, 3, 4], {1, 2}
    if rng is not None:
        tenths, visible = rng.shuffled(tenths), {1, 2 + rng.below(3)}
    weights, seen = torch.tensor(tenths) / 10, torch.tensor([part in visible for part in tenths])
    ideas = ["masked-after-softmax", "mask-inverted"]
    answer, wrong = from_mistakes(
        "masked_softmax", (weights.log(), seen), ideas, lambda found: found.tolist()
    )
    after, inverted = wrong.items()
    freed = weights[~seen].sum() / seen.sum()
    hidden, shown = (" and ".join(map(str, part.nonzero().flatten().tolist())) for part in (~seen, seen))
    return Question(
        text=f"Without a mask, a query gives its four keys the weights {vector(weights, 1)}. Now the scores "
        f"of keys {hidden} become -inf before the softmax. What are the weights?",
        answer=answer,
        wrong={
            Idea(
                "Here the keys are hidden after the softmax. So these weights do not sum to 1.",
                "masked-after-softmax",
            ): after[1],
            "Here the visible keys share the hidden weight equally. But their weights keep their "
            "proportion.": ((weights + freed) * seen).tolist(),
            Idea(f"These are the weights if keys {shown} are hidden.", "mask-inverted"): inverted[1],
        },
        because=f"The visible weights, {vector(weights[seen], 1)}, keep their proportion and now sum to 1: "
        f"each is divided by {weights[seen].sum():.1f}.",
        section="1 Hide the future",
        labels=[f"key {key}" for key in range(4)],
    )


def pairs_under_two_masks(rng):
    """How many pairs a causal mask and a padding mask leave visible together."""
    n = 5 if rng is None else 6 + rng.below(2)
    length = 3 if rng is None else 2 + rng.below(n - 3)
    causal, keys = mha_lab.causal_mask(n), mha_lab.padding_mask([length], n)[0, 0]
    both = causal & keys

    def pairs(mask):
        return float(mask.sum())

    answer, strict = from_mistakes(
        "causal_mask", (n,), ["hides-the-own-token"], lambda causal: pairs(causal & keys)
    )
    _, alone = from_mistakes(
        "padding_mask",
        (torch.tensor([length]), n),
        ["nothing-hidden"],
        lambda padding: pairs(causal & padding[0, 0]),
    )
    ((_, without_own_key),) = strict.items()
    ((_, without_padding),) = alone.items()
    return Question(
        text=f"A sentence has {length} words and, at its end, {n - length} padding tokens. A causal mask "
        "and a padding mask, which hides the padding tokens as keys, are joined with &. How "
        f"many of the {n} x {n} pairs of a query and a key are True, which means that the query may "
        "see the key?",
        answer=answer,
        wrong={
            Idea(
                "This counts one mask alone. The other one hides some of these pairs.", "nothing-hidden"
            ): without_padding,
            "This hides the rows of the padding, too. A padding mask hides only columns: the keys.": pairs(
                both & keys.mT
            ),
            "This counts the pairs that at least one mask shows. With & both masks must say True.": pairs(
                causal | keys
            ),
            Idea(
                "A query sees its own key, but no later ones. And the padding tokens have rows, too."
                if without_own_key == length**2  # the words alone, without a causal mask
                else "This hides each query's own key. A causal mask hides only later keys.",
                "hides-the-own-token",
            ): without_own_key,
        },
        because=f"By rows: {' + '.join(str(row) for row in both.sum(dim=-1).tolist())}. The causal mask "
        f"shows one key more in each row, but the padding mask never shows more than {length}.",
        section="3 Hide the padding",
    )


def keys_under_an_inverted_mask(rng):
    """What a mask shows if it is read in the other convention."""
    n = 5 if rng is None else 4 + rng.below(4)
    words = 3 if rng is None else 2 + rng.below(n - 3)
    layer, true_for_words = (True, True) if rng is None else (rng.below(2) == 0, rng.below(2) == 0)
    full, short = (
        (torch.arange(n) < length) == true_for_words for length in (n, words)
    )  # the mask, for each sentence
    reader, meaning, opposite = (
        ("PyTorch's layer, as key_padding_mask", "hide this key", "may attend to this key")
        if layer
        else (
            "PyTorch's function scaled_dot_product_attention, as attn_mask",
            "may attend to this key",
            "hide this key",
        )
    )

    where = f"at positions {words} to {n - 1}" if words < n - 1 else f"at position {words}"

    def keys(mask, flip=False):
        seen = mask != (layer != flip)
        if not seen.any():
            return "no key"
        return "all keys" if seen.all() else f"keys {', '.join(map(str, seen.nonzero()[:, 0].tolist()))}"

    def both(*flips):
        return f"sentence 0: {keys(full, flips[0])}; sentence 1: {keys(short, flips[1])}"

    return Question(
        text=f"Sentence 0 of a batch has {n} words. Sentence 1 has words at positions 0 to {words - 1} "
        f"and padding {where}. In the mask, True stands for "
        f"{'a word' if true_for_words else 'padding'}. The mask is given to {reader}. "
        + ("" if rng is None else f"There True means: {meaning}. ")  # in the chapter, a table says it
        + "Which keys do the queries of each sentence look at?",
        answer=both(False, False),
        wrong={
            f"This is right if True means: {opposite}.": both(True, True),
            "What the mask does to the words of sentence 1, it does to those of sentence 0, too.": both(
                True, False
            ),
            "No error is raised: both conventions have the same dtype and the same shape.": "an error is "
            "raised",
        },
        because=f"In this mask, True stands for {'a word' if true_for_words else 'padding'}. To its reader, "
        f"True means: {meaning}. Sentence 0 has only words.",
        section="4 Three conventions",
    )


def outputs_that_move(rng):
    """What one wrong entry of a mask adds to what depends on a token."""
    n = 5 if rng is None else 5 + rng.below(3)
    i = 1 if rng is None else 1 + rng.below(n - 3)
    j = 3 if rng is None else i + 2 + rng.below(n - 2 - i)
    causal = mha_lab.causal_mask(n)
    wrong = causal.clone()
    wrong[i, j] = True

    def outputs(moved):
        return ", ".join(map(str, moved.nonzero()[:, 0].tolist()))

    return Question(
        text=f"A causal attention function reads {n} tokens, counted from 0. Its mask has one mistake: "
        f"query {i} may see key {j}. Now only token {j} is changed. Which outputs change?",
        answer=outputs(wrong[:, j]),
        wrong={
            f"These may depend on token {j}. The leak adds one more.": outputs(causal[:, j]),
            f"This is the leak alone. The token itself and the later ones also see token {j}.": outputs(
                wrong[:, j] & ~causal[:, j]
            ),
            f"These are the keys that query {j} may see. The question is which queries see key {j}.": outputs(
                wrong[j]
            ),
            f"Query {i} sees too much, but its leak does not reach the other queries.": outputs(causal[:, i]),
        },
        because=f"Token {j} is a key of query {j} and of all later ones. By mistake, query {i} sees it, too.",
        section="6 Does it leak?",
    )
