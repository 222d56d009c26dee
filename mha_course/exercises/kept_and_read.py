"""Chapter 16: what a model with an indexer keeps of a text, and what it reads for one more token."""

from mha_course.chapters.kept import numbers_kept, numbers_read
from mha_course.exercises import Exercise, Mistake, deviations

STEP = "7 Keep all, read few"


def kept_and_read(num_layers, entry, index, chosen, n):
    """Two whole numbers: what is kept of ``n`` tokens, and what is read of it for one more token."""
    return num_layers * n * (entry + index), num_layers * (n * index + min(n, chosen) * entry)


def _problems(rng):
    yield 1, 10, 2, 3, 5
    yield 61, 576, 128, 2048, 131072
    yield 61, 576, 128, 2048, 1000
    for _ in range(3):
        num_layers, index, more, chosen, extra = rng.primes(5)
        yield num_layers, index + 2 * more, index, chosen, 3 * chosen + extra


def _build(
    layers=lambda num_layers: num_layers,
    in_index=lambda index: index,
    stored=lambda n, chosen: n,
    scanned=lambda n, chosen: n,
    fetched=min,
    order=lambda kept, read: (kept, read),
):
    def answer(num_layers, entry, index, chosen, n):
        kept = layers(num_layers) * stored(n, chosen) * (entry + in_index(index))
        read = layers(num_layers) * (scanned(n, chosen) * index + fetched(n, chosen) * entry)
        return order(kept, read)

    return answer


KNOBS = {
    "layers": {
        "one-layer": (
            "You count one layer, and there are `num_layers`.",
            STEP,
            (lambda num_layers: 1,),
        ),
    },
    "in_index": {
        "index-keys-not-kept": (
            "You leave the index keys out of what is kept. A later query needs those of all tokens.",
            STEP,
            (lambda index: 0,),
        ),
    },
    "stored": {
        "keeps-only-the-chosen": (
            "You count only the chosen tokens as kept. The next query can choose others, so all are kept.",
            STEP,
            (min, lambda n, chosen: chosen),
        ),
    },
    "scanned": {
        "index-keys-of-the-chosen": (
            "You count the index keys of the chosen tokens only. To choose, the layer reads the index keys "
            "of all tokens.",
            STEP,
            (min, lambda n, chosen: chosen),
        ),
        "index-keys-not-read": (
            "You leave the index keys out of what is read. To choose, the layer reads all of them.",
            STEP,
            (lambda n, chosen: 0,),
        ),
    },
    "fetched": {
        "more-chosen-than-there-are": (
            "You count `chosen` entries even if the text has fewer tokens.",
            STEP,
            (lambda n, chosen: chosen,),
        ),
        "reads-all": (
            "You count all entries as read. Only the chosen ones are.",
            STEP,
            (lambda n, chosen: n,),
        ),
        "entries-not-read": (
            "You leave the entries of the chosen tokens out of what is read.",
            STEP,
            (lambda n, chosen: 0,),
        ),
    },
    "order": {
        "read-first": (
            "Your two numbers are exchanged: return what is kept first.",
            STEP,
            (lambda kept, read: (read, kept),),
        ),
        "bytes": (
            "You count two bytes for each number. The numbers are asked for.",
            STEP,
            (lambda kept, read: (2 * kept, 2 * read),),
        ),
    },
}
EXERCISE = Exercise(
    answer=kept_and_read,
    chapter="16_a_state_in_place_of_a_cache",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "new-token-counted": Mistake(
            "You count the new token, too. It is left out of both numbers.",
            STEP,
            (lambda layers, entry, index, chosen, n: kept_and_read(layers, entry, index, chosen, n + 1),),
        ),
        "one-layer-read": Mistake(
            "You count what one layer reads. Each of the `num_layers` layers reads.",
            STEP,
            (
                lambda layers, entry, index, chosen, n: (
                    kept_and_read(layers, entry, index, chosen, n)[0],
                    kept_and_read(1, entry, index, chosen, n)[1],
                ),
            ),
        ),
        "one-index-for-all-layers": Mistake(
            "You count the index keys of one layer. Each of the `num_layers` layers has its own.",
            STEP,
            (
                lambda layers, entry, index, chosen, n: (
                    n * (layers * entry + index),
                    n * index + layers * min(n, chosen) * entry,
                ),
            ),
        ),
    },
    results=("first number", "second number"),
    same_as=(numbers_kept, numbers_read),
)
