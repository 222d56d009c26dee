"""What a teacher can say about a mistake: a question, or a hint that does not give the answer away."""

from mha_course.exercises import Exercise

# By chapter, and by the names of the mistakes, which may belong to several exercises of it.
_ABOUT = {
    ("00", "plain-mean plain-sum"): "Where do the weights come in? Try weights of 1, 0 and 0.",
    ("00", "summed-over-columns summed-over-everything"): (
        "A weighted average of rows has one number for each column. How many numbers do you return?"
    ),
    ("00", "softmax-of-the-weights"): "What is the sum of the weights that you are given?",
    ("01", "not-scaled scaled-by-d_k"): (
        "Go back to the variances of step 5. How large is the spread of a sum of `d_k` terms?"
    ),
    ("01", "scaled-by-d_model"): (
        "Use the square root of the width that the dot product sums over. Which width is that?"
    ),
    ("01", "softmax-over-queries"): (
        "What is the sum of each row? Each query distributes a total weight of 1 over the keys."
    ),
    ("01", "unstable-softmax"): "Try scores of 1000.",
    ("01", "one-matrix-for-all values-from-w_k"): (
        "Query, key and value have different tasks, so each has its own projection."
    ),
    ("01", "key-not-transposed"): "Entry `[i, j]` needs row `i` of one matrix and row `j` of the other.",
    ("02", "softmax-of-weights"): (
        "Weights are already the result of a softmax. Their logarithms can be used as scores."
    ),
    ("02", "temperature-inverted"): (
        "A high temperature gives nearly equal weights. A low temperature gives one large weight."
    ),
    ("03", "view-without-transpose merge-without-transpose"): (
        "Look at the memory map in step 3. Which token has two pieces in head 0?"
    ),
    ("03", "heads-interleaved"): (
        "`(heads, d_k)` and `(d_k, heads)` have the same number of entries, but the entries are in a "
        "different order."
    ),
    ("03", "softmax-over-heads weights-averaged-over-heads"): "Say the names of all four axes.",
    ("04", "mask-inverted"): "In this course, `True` means that a query may attend to the key.",
    ("04", "masked-after-softmax"): (
        "The rows no longer sum to 1, because the hidden keys have already used some of the weight."
    ),
    ("04", "masks-queries-not-keys"): ("A padding mask hides columns, because each column belongs to a key."),
    ("04", "nan-for-empty-row uniform-for-empty-row"): (
        "What should the output be for a query that may not attend to any key?"
    ),
    ("04", "hides-the-own-token sees-the-future hides-the-last-token"): (
        "Write the mask for `n = 3` by hand."
    ),
    ("05", "heads-take-turns first-rows-for-all"): (
        "The contributions of all heads must add up to `concat @ w_o`."
    ),
    ("05", "no-output-projection"): "Without `w_o`, each head can write only to its own columns.",
    ("05", "bias-ignored bias-for-each-head"): "Test the function with a bias that is not 0.",
    ("06", "wrong-order blocks-interleaved heads-interleaved"): (
        "Three axes are packed into one: query/key/value, heads, and `d_k`. Which of them is outermost?"
    ),
    ("07", "counts-problems"): ("What was repeated independently: the training runs or the test problems?"),
    ("07", "other-rows"): "Which rows of `w_o` are multiplied by the columns of this head?",
    ("08", "one-half-corrected"): (
        "Which half has the higher maximum? The answer can differ from query to query."
    ),
    ("08", "output-not-corrected"): (
        "The sum so far was computed with the old maximum. What must change when the maximum changes?"
    ),
    ("08", "multiplications-only"): (
        "Count the additions too. A sum of `b` products needs `b` multiplications and `b - 1` additions, but "
        "it is usual to count `b` additions."
    ),
    ("09", "other-layout"): "Which two numbers form a pair?",
    ("09", "one-speed half-the-exponent"): "For pair 0, theta is 1. What is theta for pair 1?",
    ("09", "sign-lost"): "Compare a key to the left of the query with a key to the right.",
    ("10", "not-shifted shifted-backwards"): (
        "Which token has the model read, and which token must it predict?"
    ),
    ("10", "triangle-as-before shifted-by-the-number-of-new-tokens"): (
        "Write the mask for 2 tokens in the cache and 2 new tokens by hand."
    ),
    ("10", "keys-only"): "What does a new query need besides the keys?",
    ("10", "queries-kept"): "Does a later step use the query of an earlier token?",
    ("12", "whole-list-repeated"): (
        "Which query heads share key head 0: neighbouring heads, or every second head?"
    ),
    ("12", "one-key-too-many one-key-too-few"): (
        "Count the keys that one query sees, its own key included. How many should it see?"
    ),
    ("12", "window-ignored"): "How many tokens does a layer with a window keep?",
    ("13", "sink-kept rows-sum-to-1"): "Must the weights of the real keys sum to 1?",
    ("13", "mean-subtracted"): "Which norm subtracts a mean: LayerNorm or RMSNorm?",
    ("13", "queries-from-0"): "There are 3 tokens in the cache. At which position is the first new token?",
    (
        "13",
        "cut-off",
    ): "Two scores are above the cap, and one is larger. Can the softmax still tell them apart?",
    ("14", "earlier-place-itself"): (
        "Which token can the model predict: the one at the earlier place, or the one after it?"
    ),
    ("14", "costs-most-together"): "How much of this does each of the two heads cost alone?",
}

TO_SAY = {(chapter, name): text for (chapter, names), text in _ABOUT.items() for name in names.split()}


def to_say(exercise: Exercise, mistake: str) -> str:
    """What to say about this mistake in this exercise; empty if nothing was written."""
    return TO_SAY.get((exercise.chapter[:2], mistake), "")
