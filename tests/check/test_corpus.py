"""First tries of readers: right answers earn everything, wrong ones nothing, and what is said is true."""

import re
from functools import cache

import pytest

from mha_course.checker import runner
from mha_course.checker.report import make
from mha_course.exercises import find, names
from tests.check.claims import false_of, unclaimed, untrue
from tests.check.corpus import tries
from tests.check.matrix import (
    PAGE,
    answer_page,
    answer_pages,
    answers,
    in_order,
    published,
    published_answers,
    rows,
    text,
)

# Wrong answers pass wrong arguments, and warn.
pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore")]

judged = cache(lambda one, seed=0: one.diagnosis(seed))
TRIES = tries()
SLOW = [pytest.mark.slow]  # all but the first class of readers take a few minutes
CASES = [pytest.param(x, marks=[] if re.fullmatch(r"\d\d(_\w+)?_a", x.file) else SLOW) for x in TRIES]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Whether an answer is right does not depend on how busy the machine is."""
    monkeypatch.setattr(runner, "SECONDS", 60.0)


@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_first_try_is_judged_as_it_deserves_and_told_nothing_untrue(one):
    diagnosis = judged(one)
    assert (diagnosis is not None and diagnosis.name is None) == one.right, diagnosis
    if diagnosis is None:
        assert find(one.exercise).bug  # what it was given, with other names
    elif not one.right:
        assert untrue(one.exercise, diagnosis, one.function()) == ""


TOLD = {  # a reader got other advice here, which was not true or did not help
    "00_reader_b-0-weighted_average": ("`values.shape[1]`", "Two sizes of one axis differ"),
    "01_ana_a-1-scaled_scores": ("the same number for all sizes", "Several mistakes"),
    "01_ana_a-2-scaled_scores": ("`key[j]` are matrices", "they would fit"),
    "01_ana_a-3-scaled_scores": ("Sizes read from the end", "Count axes from the end"),
    "01_ana_a-8-single_head_attention": ("returns a tensor of shape (2, 1)", "Your weights have shape"),
    "01_ana_a-10-fix_scale": ("they are not divided", "a tensor of shape"),
    "01_published_c-6-attention_weights": ("cuts the scores off", "no known mistake"),
    "01_published_c-8-single_head_attention": ("square root of d_v", "no known mistake"),
    "01_published_c-11-fix_scale": ("fourth root of d_k", "no known mistake"),
    "01_reader_a-0-scaled_scores": ("right for some sizes only", "your function is right;"),
    "01_reader_a-1-scaled_scores": ("`d_k = query.shape[-1]`", "which is 1024"),
    "01_reader_a-2-scaled_scores": ("counted from the end", "5 Why divide"),
    "01_reader_a-3-attention_weights": ("subtracts the same constant", "mean"),
    "01_reader_a-4-attention_weights": ("`scores.amax(dim=-1, keepdim=True)`", "one truth value"),
    "01_reader_a-5-attention_weights": ("subtracts a mean", "smallest"),
    "01_reader_b-0-single_head_attention": ("such as the sqrt(3)", "a known mistake"),
    "01_reader_b-1-single_head_attention": ("works without a batch axis", "with more, it fails"),
    "01_reader_c-0-scaled_scores": (
        "If the first argument has 2 axes, your function raises no error",
        "Does your code",
    ),
    "01_reader_d-0-query_fetching_15": ("Key 2, with the value 60, has too much", "together"),
    "01_reader_d-1-query_fetching_15": ("Key 1, with the value 20, has too much", "together"),
    "01_reader_d-2-query_fetching_15": ("Keys 1 and 2", "alone"),
    "01_reader_d-3-single_head_attention": ("for some shapes only", "With axes in front"),
    "01_reader_d-4-most_attended_keys": ("both results of `max` (values and indices)", "a max"),
    "02_reader_a-0-soft_lookup": ("too large or too negative", "largest value"),
    "02_reader_a-3-query_for_key": ("length is not divided out", "key @ key"),
    "02_reader_b-0-query_for_key": ("one score is", "`sqrt(d_k)` is missing"),
    "02_reader_b-1-query_for_key": ("a short key needs a larger factor", "`sqrt(d_k)` is missing"),
    "02_reader_c-0-query_averaging": ("length is not divided out", "Also:"),
    "02_reader_c-1-query_averaging": ("length is divided out of your query once", "Also:"),
    "02_reader_c-2-query_averaging": ("are equal, but they grow", "Also:"),
    "02_reader_c-4-query_by_hand": ("a longer query in the same direction", "2 One query, two equal keys"),
    "02_reader_b-3-query_for_key": ("too long for some keys", "too small"),
    "03_reader_a-0-predict_place": ("column // num_heads", "2 What view does"),
    "03_reader_a-1-split_heads": ("Cut the width into heads first", "reshape"),
    "03_reader_a-2-split_heads": ("Cut the width into heads first", "use `reshape`"),
    "03_reader_a-3-merge_heads": ("Swap heads and tokens first, and join after that", "use `reshape`"),
    "07_reader_b-0-most_similar_heads": ("squared differences", "fit that example only"),
    "07_reader_b-1-most_similar_heads": ("squared differences", "fit that example only"),
    "07_reader_b-2-fix_interval": ("Divide by n - 1", "np.std"),
    "03_reader_b-0-split_heads": ("have no batch", "number of entries"),
    "04_reader_b-0-leaks_future": ("such a change cannot show a leak", "finds no leak behind it"),
    "04_reader_b-1-masked_softmax": ("scores = [[ 1., 2., 200.]", "[False, False, False]"),
    "04_reader_b-2-masked_softmax": ("scores = [[ 1., 2., 200.]", "[False, False, False]"),
    "04_reader_b-3-masked_softmax": ("Your gradient is NaN at 3 of 6 places.", "is True at 3 places"),
    "04_reader_d-0-fix_padding": ("between the batch and the keys", "Your mask is (batch, n)"),
    "04_reader_d-1-packed_mask": ("[1, 1, 1]", "no known mistake"),
    "04_reader_d-2-packed_mask": ("1 Hide the future", "3 Hide the padding"),
    "04_reader_d-3-predict_equal_scores": ("3 Hide the padding", "2 Before or after"),
    "04_mask_by_hand_b-7-mask_by_hand": ("And one of these", "Or: Your mask is not causal"),
    "04_published_a-7-masked_softmax": ("added to it, is not low enough", "row that sees nothing"),
    "04_published_a-9-masked_softmax": ("0 or a negative number", "The number that replaces"),
    "05_newcomer_b-8-fix_bias": ("comes without this row", "Nothing is added here"),
    "07_published_a-0-most_similar_heads": ("most similar by a divergence", "(cosine)"),
    "07_published_b-2-most_similar_heads": ("by a cosine or a correlation", "squared differences"),
    "07_published_c-3-ablate_head": ("puts an average in place", "as a bias is"),
    "09_published_a-0-score_new_token": ("turned by these angles once more", "does not turn the query"),
    "09_published_a-1-score_new_token": ("turned again by the same angles", "turns neither"),
    "10_published_a-0-predict_cache": ("two bytes in float16", "You count only the keys"),
    "10_published_a-2-predict_cache": ("four bytes in float32", "float16"),
    "13_published_c-1-softmax_with_sink": ("drops the first column", "no known mistake"),
    "05_published_d-3-fix_bias": ("one time less", "subtracts"),
    "13_published_d-3-norm_query_key": ("multiplies by the root mean square", "no known mistake"),
    "14_published_d-1-induction_score": ("on the token before", "no known mistake"),
    "14_induction_score_b-7-induction_score": ("one of these", "Or: Your function reads"),
    "11_reader_b-0-sees_padding": ("A LayerNorm removes such a change", "(False, 20, True)"),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_reader_is_told_what_is_true_and_no_longer_what_is_not(name):
    one = next(one for one in TRIES if str(one) == name)
    report, (said, not_said) = str(make(find(one.exercise), judged(one))), TOLD[name]
    assert said in report
    assert not_said not in report


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_verdict_does_not_hang_on_the_draw(seed):
    for one in TRIES:
        diagnosis = judged(one, seed)
        assert (diagnosis is not None and diagnosis.name is None) == one.right, one


@pytest.mark.parametrize("name", names())
def test_every_known_mistake_without_a_variant_has_a_predicate(name):
    assert unclaimed(find(name)) == []


@pytest.mark.slow
def test_the_published_table_is_this_one():
    judged_all = [(one, judged(one)) for one in TRIES]
    assert published() == rows(judged_all, false_of(judged_all)), "run make matrix"
    assert PAGE.read_text(encoding="utf-8").endswith(f"{text(published())}\n")
    assert published_answers() == answers(judged_all), "run make matrix"


def test_every_wrong_answer_is_on_the_page_of_its_chapter():
    pages = {path: path.read_text(encoding="utf-8") for path in answer_pages(published_answers())}
    assert pages == answer_pages(in_order(published_answers()))
    for one in (one for one in TRIES if not one.right):
        assert f"```python\n{one.source}```" in pages[answer_page(one.exercise)], one
