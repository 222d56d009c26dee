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

# Of a right result

HALF = "Your result is right only to the accuracy of {precision}; float32 is expected."
ACCEPTED_MASK = (
    "Your function returns {source}, which is accepted here. In a model, return a tensor: `masked_fill` does "
    "not take {source}."
)
ACCEPTED_NUMBERS = (
    "Your function returns {source}, which is accepted here. In a model, return a tensor: {source} has no "
    "gradient."
)
CHANGES_ITS_INPUT = (
    "The result is right, but your function changes its argument `{name}`, which is what you see below."
)

# Of a line that raised

RAISES = "Your function raises, for arguments of {sizes}."
RAISES_IN = "Your function raises in line {line} of {function}:"
RAISES_IN_YOURS = "Your function raises in line {line} of your function:"
AT = "at: {part}"
WHERE = "where {names}"
SHAPE = "shape {shape}"
HAS_SHAPE = "{name} has shape {shape}"
IS = "{name} is {what}"
ERROR = "{name}: {text}"
NO_MESSAGE = "{name}: no message"

# Of the notebook's names

READ_HAS_SHAPE = "`{name}`, which has shape {shape}"
READ_IS = "`{name}`, which is {what}"
READS = "Your function uses the notebook's {names}. Everything that it needs is in its arguments."
READS_WITHOUT_ARGUMENTS = (
    "Your function uses the notebook's {names}. Everything that it needs must be inside the function."
)
DOES_NOT_FIT = "Here the notebook's {names} is combined with values from the arguments, and does not fit."
USED_HERE = "Here the function uses the notebook's {names}."

# Of what fits all results

REFUSED = "Your function calls the finished `{name}`, which this exercise asks you to write yourself."
REFUSED_UNNAMED = "Your function calls what this exercise asks you to write yourself."
AND, OR = " And: ", " Or: "  # between causes, which are whole sentences
ONE_OF_TWO = "Two mistakes give exactly these results. {causes}"
ONE_OF_SEVERAL = "Several mistakes fit. {causes}"
ONE_OF_THESE_TOO = "{common} And one of these, which give the same results: {causes}"
CALLS_A_STUB = (
    "Your function calls `{function}`, which is not written yet: it raises NotImplementedError. Write that "
    "one first."
)
CALLS_ANOTHER_STUB = (
    "Your function calls `another function`, which is not written yet: it raises NotImplementedError. Write "
    "that one first."
)
CALLED_WITH = "`check` calls it with: {arguments}."
LAST_SIZE = "It is the last size of an argument: `{name} = {argument}.shape[-1]`."
RIGHT_FOR_SOME_SIZES = (
    "If the first argument has {axes} axes, your function raises no error, but its result is right for some "
    "sizes only. Often, such code contains a number that fits one example only."
)
WORKS_FOR_NUMBERS = "Your function works for single numbers, and fails for tensors with axes."
WORKS_WITHOUT_A_BATCH = "Your function works without a batch axis, and fails with one."
WORKS_FOR_FEW_AXES = "Your function works if the first argument has {axes} axes, and fails with more."
COUNT_FROM_THE_END = "Count axes from the end, as in `x.shape[-1]`: that works for 2 axes and for more."
DROPPED_OUT = (
    "Some numbers are 0, and the others are {times:.3g} times the right ones, as dropout makes them. Dropout "
    "is for training only; none is asked for here."
)
ROW_ADDED = (
    "One and the same row of numbers is added to each row of the right result, as a bias is. The right "
    "result comes without this row."
)
THE_SAME_FOR_ALL = "Your function returns the same for all {problems} problems that were tried."
RIGHT_FOR_THE_FIRST = "Your result is right for the first problem, and wrong for the other {wrong}."
