"""Chapter 07: two of eight heads, picked in a picture, from which a linear readout can read both answers."""

import torch

from mha_course.chapters import recall
from mha_course.exercises import Exercise, Mistake, _picked

LARGEST = "2 What a linear readout cannot get from one row of weights"
LOOK = "6 What the heads learned"
NAMES, ASKED = [2, 5, 0, 7, 3, 1], [[5, 0], [0, 5], [5, 7], [7, 2], [2, 5]]
ANSWERS = ("first", "second")


def heads_to_keep():
    """The head with the largest weight on the second record in every question, and that for the first."""
    return [2, 5]


def heads_and_places():
    """The weights of the picture, ``(8, questions, n)``, and the records asked for, ``(questions, 2)``."""
    names, asked = torch.tensor(NAMES), torch.tensor(ASKED)
    records = names.expand(len(asked), len(names))
    weights = recall.ruled_heads(recall.RecallBatch(records, records, asked))
    return weights, (asked[:, :, None] == names).long().argmax(dim=-1)


def _accepts(result, weights, places):
    if told := _picked.flaw(result, len(weights)):
        return told
    picked, top = _picked.heads(result), weights.argmax(dim=-1)  # (heads, questions)
    always = (top[:, :, None] == places).all(dim=1)  # (heads, answers)

    def both(heads):
        return always[heads].any(dim=0).all().item()

    if both(picked) and len(picked) == 2:
        return None
    if picked == [0, 1, 2, 3]:
        return "where-the-picture-begins", f"Your list is {picked}."
    if both(picked):
        return "more-than-two", f"Your list is {picked}. Two of these heads are enough."
    if picked[0] > 0 and len(picked) == 2 and both([head - 1 for head in picked]):
        return "counted-from-1", f"Your list is {picked}."
    lost = [answer for answer in range(2) if not always[picked, answer].any()]
    near = {answer: _nearest(picked, top == places[:, answer]) for answer in lost}
    names = [("ABCDEFGH"[a], "ABCDEFGH"[b]) for a, b in ASKED]
    seen = " ".join(
        f"For the {ANSWERS[answer]} answer, head {head} comes nearest. But for the question "
        f"{', '.join(names[row])}, its largest weight is on {'ABCDEFGH'[NAMES[top[head, row]]]}."
        for answer, (head, row) in near.items()
    )
    return "both-answers-lost" if len(lost) == 2 else f"{ANSWERS[lost[0]]}-answer-lost", seen


def _nearest(picked, right):
    """The picked head that is right for most questions, and the first question for which it is wrong."""
    best = max(picked, key=lambda head: right[head].sum().item())
    return best, right[best].long().argmin().item()


EXERCISE = Exercise(
    answer=heads_to_keep,
    chapter="07_why_more_heads",
    section=LARGEST,
    points=1,
    problems=lambda rng: iter([heads_and_places()]),
    call=lambda answer, weights, places: answer(),
    accepts=_accepts,
    mistakes={
        **_picked.mistakes(LOOK, "eight", 8, "Without a head, the layer fetches nothing."),
        "more-than-two": Mistake(
            "Both answers can be found from your heads, but you keep more heads than you need.", LARGEST, ()
        ),
        "first-answer-lost": Mistake(
            "One of your heads can give the second answer to all questions. None of them has its largest "
            "weight on the record asked for first in every question.",
            LARGEST,
            (),
        ),
        "second-answer-lost": Mistake(
            "One of your heads can give the first answer to all questions. None of them has its largest "
            "weight on the record asked for second in every question.",
            LARGEST,
            (),
        ),
        "both-answers-lost": Mistake(
            "None of your heads has its largest weight on the record asked for first in every question, and "
            "none on the record asked for second in every question.",
            LARGEST,
            (),
        ),
    },
)
