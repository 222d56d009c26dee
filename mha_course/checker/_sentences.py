"""What ``check`` says of a result and of an error: whole sentences, with a name for each thing put in.

Of two sentences in one tuple, the first is about one thing, and the second about several.
"""


def joined(*sentences: str) -> str:
    """One after the other, without the empty ones."""
    return " ".join(filter(None, sentences))


# Of a result beside the expected one

RETURNS = (
    "Your function returns {got}; {expected} is expected.",
    "Your function returns {got}; {expected} are expected.",
)
RETURNS_SEVERAL = "Your function returns {got}. One is expected: {expected}."
RIGHT_AND_WRONG = (  # one is right, or several are; of each, one is wrong, or several are
    ("Your {right} is right; your {wrong} is not.", "Your {right} is right; your {wrong} are not."),
    ("Your {right} are right; your {wrong} is not.", "Your {right} are right; your {wrong} are not."),
)
OTHER_KIND = (  # one result, or several; of each, one thing is expected, or several are
    ("Your {name} is {got}; {expected} is expected.", "Your {name} is {got}; {expected} are expected."),
    ("Your {name} are {got}; {expected} is expected.", "Your {name} are {got}; {expected} are expected."),
)
OTHER_SHAPE = (
    "Your {name} has shape {got}; {expected} is expected.",
    "Your {name} have shape {got}; {expected} is expected.",
)
OTHER_SHAPE_TURNED = (
    "Your {name} has shape {got}; {expected} is expected. After a further `permute{axes}` it would be right.",
    "Your {name} have shape {got}; {expected} is expected. "
    "After a further `permute{axes}` it would be right.",
)
NO_NUMBERS = (
    "Your {name} has booleans; numbers are expected.",
    "Your {name} have booleans; numbers are expected.",
)
NO_BOOLEANS = (
    "Your {name} has numbers; booleans are expected.",
    "Your {name} have numbers; booleans are expected.",
)
MISSING = "There is no {name}."
IS_NAN = "Your {name} is NaN at {places} of {size} places."
HAS_NAN = (
    "Your {name} has NaN at {places} of {size} places.",
    "Your {name} have NaN at {places} of {size} places.",
)
HAS_INFINITY = (
    "Your {name} has infinity at {places} of {size} places.",
    "Your {name} have infinity at {places} of {size} places.",
)
MASK_INVERTED = (
    "Your {name} is True where False is expected, and False where True is expected, at every place.",
    "Your {name} are True where False is expected, and False where True is expected, at every place.",
)
MASK_WRONG = ("Your {name} is {places}.", "Your {name} are {places}.")
TRUE_AT = ("True at 1 place where False is expected", "True at {count} places where False is expected")
FALSE_AT = ("False at 1 place where True is expected", "False at {count} places where True is expected")
IS_ZERO = ("Your {name} is 0.", "Your {name} are 0.")
IS_ZERO_EVERYWHERE = ("Your {name} is 0 everywhere.", "Your {name} are 0 everywhere.")
MULTIPLIED = "Every number of your {name} is {times:.3g} times the expected one."
LARGER = "Every number of your {name} is larger by {by:.3g}."
SMALLER = "Every number of your {name} is smaller by {by:.3g}."
REORDERED = (
    "Your {name} has the expected numbers, but in the wrong places.",
    "Your {name} have the expected numbers, but in the wrong places.",
)
TURNED = "Your {name} would be right after a further `permute{axes}`."
COLUMNS_SUM_TO_1 = "The columns of your {name} sum to 1, and the rows do not: {sums}."
NUMBERS_SUM_TO = "The numbers of your {name} sum to {sums}."
SOME_ROWS_SUM_TO = (
    "1 of {rows} rows of your {name} sums to {sum}; it should sum to {expected}.",
    "{count} of {rows} rows of your {name} sum to {sum}; they should sum to {expected}.",
)
ALL_ROWS_DIFFER = "The rows of your {name} sum to {sums}, and not to {expected}."
SOME_ROWS_DIFFER = "Some rows of your {name} sum to {sums}, and not to {expected}."
ROWS_SUM_TO_1 = "The rows of your {name} sum to 1, as they should, but the numbers are wrong."
NUMBERS_SUM_TO_1 = "The numbers of your {name} sum to 1, as they should, but the numbers are wrong."
NUMBERS_RIGHT = (
    "1 of {size} numbers of your {name} is right.",
    "{count} of {size} numbers of your {name} are right.",
)
