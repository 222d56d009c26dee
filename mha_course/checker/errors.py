"""Finds the likely cause from an exception and the line that raised it, for the usual exceptions."""

import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import mha_lab
from mha_course.checker._sentences import joined
from mha_course.checker.trace import Fact

IMPORT = "There is no `{name}` in this notebook yet: `from mha_lab import {name}` imports it."
NO_NAME = "There is no `{name}`. Is it misspelt, or was it never defined?"
NEAR_NAME = "There is no `{name}`. Did you mean `{near}`?"
NO_ATTRIBUTE = "`{name}` does not exist there."
NEAR_ATTRIBUTE = "`{name}` does not exist there. Did you mean `{near}`?"
PRODUCT = (
    "A matrix product needs the last axis of the left to be as long as the second to last of the right; here "
    "they are {left} and {right} long."
)
RIGHT_TRANSPOSED = "With the right one transposed (`.mT`) they would fit."
RIGHT_NOT_TRANSPOSED = "With the right one not transposed (`.mT`) they would fit."
LEFT_TRANSPOSED = "With the left one transposed (`.mT`) they would fit."
MORE_AXES = (
    "The line expects {axes} axes, and the tensor has more. Sizes read from the end, as in `x.shape[-1]`, "
    "fit any axes in front."
)
FEWER_AXES = (
    "The line expects {axes} axes, and the tensor has fewer. Sizes read from the end, as in `x.shape[-1]`, "
    "fit any axes in front."
)
WHICH_AXIS = "An argument is missing in this call. Which axis does it run over?"
ARGUMENT_MISSING = "An argument is missing in this call: {names}."
ARGUMENTS_MISSING = "Some arguments are missing in this call: {names}."


class OfAxes(str):
    """A sentence that already tells what to do about axes in front."""

    __slots__ = ()


def cause(kind: str, text: str, where: dict[str, Any]) -> str:
    """One or two sentences, or an empty string if no rule fits."""
    line, names = where.get("text", ""), dict(where.get("names", []))
    ranks = {name: len(what) for name, what in names.items() if not isinstance(what, str)}
    for pattern, says in RULES:
        if found := re.search(pattern, f"{kind}: {text}", re.DOTALL):
            sentence = says if isinstance(says, str) else says(found, line, ranks, where)
            if sentence:
                return sentence
    return ""


def _name(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    name = found.group(1)
    if name in mha_lab.__all__:
        return IMPORT.format(name=name)
    return (NEAR_NAME if where.get("near") else NO_NAME).format(name=name, near=where.get("near"))


def _attribute(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    says = NEAR_ATTRIBUTE if where.get("near") else NO_ATTRIBUTE
    return says.format(name=found.group(1), near=where.get("near"))


def _turned(line: str, ranks: dict) -> str:
    """``.T`` or a fixed pair of axes on a tensor with a batch axis."""
    for name, rank in ranks.items():
        if rank > 2 and re.search(rf"\b{re.escape(name)}\.(T\b|t\(\))", line):
            return OfAxes(
                f"`{name}` has {rank} axes, and `.T` reverses all of them: "
                "`.mT` swaps the last two and does not change the axes in front."
            )
        if rank > 2 and re.search(rf"\b{re.escape(name)}\.transpose\((0, ?1|1, ?0)\)", line):
            return OfAxes(
                f"`{name}` has {rank} axes: `transpose(0, 1)` swaps the first two. "
                "Axes counted from the end, `transpose(-2, -1)`, fit any number of axes in front."
            )
    return ""


def _sizes(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    part = where.get("part") or line
    if says := _turned(part, ranks):
        return says
    if re.search(r"\.(sum|mean|max|amax|min|logsumexp|any|norm)\(", part) and "keepdim" not in part:
        return (
            "A sum, mean or maximum drops its axis, and the other axes no longer line up: "
            "`keepdim=True` keeps the axis with length 1."
        )
    names = dict(where.get("names", []))
    if says := _lost_axis(part, names) or _opposite(names):
        return says
    if "@" in part or "matmul" in part:
        return (
            "In a matrix product, the axes before the last two must have equal sizes, or 1. Did you swap an "
            "axis that belongs there? `mT` swaps only the last two."
        )
    return (
        "Two sizes of one axis differ, so the tensors cannot be combined entry by entry. Shapes line up from "
        "the right, and only an axis of length 1 fits any other length."
    )


def _lost_axis(part: str, names: dict[str, Fact]) -> str:
    """``a - b`` where ``b`` has all axes of ``a`` but one."""
    found = re.fullmatch(r"(\w+) *(?:[-+*/&|]|//|\*\*|[<>]=?|\+=|-=|\*=|/=) *(\w+)", part.strip())
    sizes = {n: names.get(n, "") for n in (found.groups() if found else ())}
    if len(sizes) != 2 or any(isinstance(size, str) for size in sizes.values()):
        return ""
    small, large = sorted(sizes, key=lambda n: len(sizes[n]))
    places = [i for i in range(len(sizes[large])) if sizes[large][:i] + sizes[large][i + 1 :] == sizes[small]]
    if not places:
        return ""
    index = ", ".join([":"] * places[0] + ["None"])
    return (
        f"`{small}` has one axis fewer than `{large}`, and shapes line up from the right. "
        f"`{small}[{index}]` has one axis more, of length 1, and lines up; in a sum or maximum, "
        "`keepdim=True` keeps that axis."
    )


def _opposite(names: dict[str, Fact]) -> str:
    """Two matrices with the same sizes in opposite order."""
    matrices = {n: what for n, what in names.items() if not isinstance(what, str) and len(what) == 2}
    for (one, (a, b)), (other, sizes) in combinations(matrices.items(), 2):
        if a != b and sizes == (b, a):
            return f"`{one}` and `{other}` have the same sizes in opposite order: one of them needs `.mT`."
    return ""


def _sample(part: str, ranks: dict) -> str:
    """``query[i] @ key[j]``, a dot product of two rows, where both have a batch axis."""
    found = re.fullmatch(r"(\w+)\[(\w+)\] *@ *(\w+)\[(\w+)\]", part.strip())
    if not found or found[2] == found[4] or ranks.get(found[1]) != 3 or ranks.get(found[3]) != 3:
        return ""
    row, other = f"{found[1]}[{found[2]}]", f"{found[3]}[{found[4]}]"
    return OfAxes(
        f"`{found[1]}` and `{found[3]}` have 3 axes here, so `{row}` and `{other}` are matrices, and no "
        "longer single rows: the first axis is the one in front, the batch."
    )


def _product(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    part = where.get("part") or line
    if says := _turned(part, ranks):
        return says
    if says := _sample(part, ranks):
        return says
    rows, inner, outer, columns = (int(n) for n in found.groups())
    if re.search(r"\blinear\(", part):
        return (
            "`F.linear(x, w)` computes `x @ w.mT`: it transposes its second argument. `x @ w` does not; "
            "`F.linear(x, w.mT)` is the same."
        )
    says = PRODUCT.format(left=inner, right=outer)
    turned = re.search(r"\.mT|\.T\b|transpose\(", part.rpartition("@")[2])
    if inner == columns:
        return joined(says, RIGHT_NOT_TRANSPOSED if turned else RIGHT_TRANSPOSED)
    if rows == outer:
        return joined(says, LEFT_TRANSPOSED)
    return says


def _truth(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    if python := re.match(r"(max|min)\(", where.get("part") or line):
        name = python.group(1)
        return (
            f"This is Python's own `{name}`, which compares whole rows. For the numbers along one axis, use "
            f"`scores.a{name}(dim=-1, keepdim=True)`, with your tensor in place of `scores`."
        )
    if re.search(r"[<>=]=?[^&|]*[&|]|[&|][^&|]*[<>=]", line) and not re.search(r"\b(if|and|or|not)\b", line):
        return "`&` and `|` bind more tightly than a comparison. Write brackets: `(a < b) & (c < d)`."
    return OfAxes(
        "`if`, `and`, `or` and `not` need one truth value; for tensors: `&`, `|`, `~`, `.any()`, `.all()`."
    )


def _vector(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    return (
        "A product sums over the last axis of the left tensor and the first of the right one; here their "
        f"lengths are {found.group(1)} and {found.group(2)}."
    )


def _batch(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    if says := _turned(line, ranks):
        return says
    return OfAxes("The axes in front of the matrices differ, or the axes of the sum have different lengths.")


def _float(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    if "/" in line.replace("//", ""):
        return "`/` gives a float, even without a remainder: a size needs `//`."
    return "A size or an index must be a whole number. Was it made with `/`? `//` keeps it whole."


def _unpack(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    if "shape" in line or "size()" in line:
        says = MORE_AXES if found.group(1) == "too many" else FEWER_AXES
        return OfAxes(says.format(axes=found.group(2)))
    return "There are more or fewer values on the right than names on the left."


def _missing(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    """Python writes the names in single quotation marks, PyTorch in double ones."""
    names = re.findall(r"['\"](\w+)['\"]", found.group(1))
    if names and names[0].startswith(("dim", "axis")):
        return WHICH_AXIS
    says = ARGUMENT_MISSING if len(names) == 1 else ARGUMENTS_MISSING
    return says.format(names=", ".join(f"`{name}`" for name in names))


def _few(found: re.Match, line: str, ranks: dict, where: dict) -> str:
    return OfAxes(
        f"The equation of the einsum names {found.group(1)} axes, but the tensor has {found.group(2)}. "
        "`...` in front matches any axes: `'...id,...jd->...ij'`."
    )


XOR = "In Python, `^` is no power: it is exclusive or, which compares bits. A power is `**`, as in `n ** 2`."

Says = str | Callable[[re.Match, str, dict, dict], str]
RULES: list[tuple[str, Says]] = [
    (
        r"UnboundLocalError: .*variable '(\w+)'",
        "The name gets its value only later, or in a branch that is not taken.",
    ),
    (r"expected Tensor as element", "`stack` and `cat` join tensors, but here they get something else."),
    (r"NameError: name '(\w+)' is not defined", _name),
    (
        r"(return_types|can only concatenate tuple)",
        "`max`, `min` and `sort` along an axis return values and indices: take `.values`.",
    ),
    (
        r"'NoneType'",
        "Something on this line is None: an optional argument that is left out, a variable of the notebook, "
        "or the result of a function without `return`.",
    ),
    (r"AttributeError: .*has no attribute '(\w+)'", _attribute),
    (
        r"number of subscripts in the equation \((\d+)\) does not match the number of dimensions \((\d+)\)",
        _few,
    ),
    (
        r"masked_fill(.*'mask'.*must be Tensor|.*got \((float|int), Tensor)",
        "`masked_fill` takes the mask first and the number second: `scores.masked_fill(mask, number)`.",
    ),
    (
        r"must be tuple of Tensors, not Tensor",
        "`cat` and `stack` need several tensors, in a list or a tuple.",
    ),
    (
        r"must be Tensor, not (\w+)",
        "This function needs a tensor, but it gets a Python value. For numbers, use `math`, as in "
        "`math.sqrt(d_k)`.",
    ),
    (r"einsum\(\): ", "The equation of the einsum does not fit the shapes of its tensors."),
    (r"EinopsError", "The pattern of einops does not fit the shape of its tensor."),
    (
        r"(must be tuple of ints|float.* as an integer|integer argument expected|slice indices must be)",
        _float,
    ),
    (r"(of ints,but got float|found float|not float\b|be int.* not float)", _float),
    (
        r"view size is not compatible",
        "`view` moves no numbers, and the numbers of this tensor are not stored row by row in memory. "
        "`reshape` copies them row by row: is this the order that you want? (`x.contiguous()` returns a "
        "copy, too; x itself does not change.)",
    ),
    (
        r"shape '.*' is invalid for input of size",
        "The product of these sizes is not the number of entries.",
    ),
    (r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _product),
    (r"size mismatch, got input \(\d+\), mat \(\d+x(\d+)\), vec \((\d+)\)", _vector),
    (r"inconsistent tensor size, expected tensor \[(\d+)\] and src \[(\d+)\]", _vector),
    (r"(Expected size for first two dimensions of batch2|batch1.*batch2|must have same batch)", _batch),
    (r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)", _sizes),
    (r"(could not be broadcast|not broadcastable|cannot be broadcast|expanded size)", _sizes),
    (r"(too many|not enough) values to unpack \(expected (\d+)", _unpack),
    (
        r"only implemented on integer and Boolean",
        "`~` inverts booleans; this is a tensor of numbers. Is the mask boolean?",
    ),
    (
        r"(only supports boolean masks|expects a bool)",
        "A mask must be boolean here: `mask.bool()`, or a comparison.",
    ),
    (
        r"(same dtype|expected scalar type|dtype.*mismatch|data type)",
        "Two tensors have different dtypes. Was one made without the dtype of the other?",
    ),
    (
        r"not implemented for '(Long|Int|Bool)'",
        "This operation needs floating-point numbers, not integers or booleans: `.float()` converts them.",
    ),
    (r"missing \d+ required [\w-]+ arguments?: ([^\n]*)", _missing),
    (
        r"(takes (from \d+ to )?\d+ positional arguments? but|unexpected keyword)",
        "This call passes arguments that the function does not take.",
    ),
    (
        r"(only one element tensors can be converted|a Tensor with \d+ elements cannot be converted)",
        "A tensor of several numbers is used where one number is needed; `math` functions take one number.",
    ),
    (
        r"Boolean value of Tensor with more than one value",
        _truth,
    ),
    (r"Dimension out of range", "There is no such axis: axes count from 0, or from -1 at the end."),
    (
        r"appears multiple times in the list of dims",
        "Two of the axes in `dim` are one and the same here: this tensor has fewer axes than you expect.",
    ),
    (
        r"Tensors must have same number of dimensions: got (\d+) and (\d+)",
        lambda f, *_: (
            f"`cat` joins tensors with equally many axes. One has {f.group(1)}, another {f.group(2)}."
        ),
    ),
    (r"too many indices", "There are more indices than axes."),
    (r"out of (bounds|range)", "The index is too large: the last of n has index n - 1."),
    (
        r"not callable",
        "Round brackets call a function, but this is not a function. Square brackets take an entry.",
    ),
    (
        r"Axis must be specified",
        "NumPy's average with weights needs to know along which `axis` to average.",
    ),
    (
        r"number of sizes provided \((\d+)\) must be greater or equal to the number of dimensions",
        lambda f, *_: (
            "A tensor is expanded or written to a shape with fewer axes than it has."
            if int(f.group(1))
            else "A tensor of several numbers is written to a place for one number."
        ),
    ),
    (
        r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)",
        lambda f, *_: (
            f"The loss gets {f.group(1)} predictions and {f.group(2)} targets: these must be equal."
        ),
    ),
    (
        r"expected a shape that broadcasts to \(batch, heads, query, key\) = (\(.*?\)), got (\(.*?\))\.",
        lambda f, *_: (
            f"The mask is {f.group(2)} and the weights are {f.group(1)}: the last axes are queries, keys."
        ),
    ),
    (
        r"(does not match the length of the desired ordering|permute)",
        "`permute` needs each axis of the tensor once: as many numbers as it has axes.",
    ),
    (
        r"Provided sizes .* don.t multiply up",
        "The product of these sizes is not the length of the axis.",
    ),
    (r"broadcast shape|zip\(\) argument", "Two things that belong together have different lengths."),
    (r"module. object is not callable", "A module is called here: the function is one of the names in it."),
    (
        r"OverflowError",
        "A number is too large for its type, as `math.exp` of a number above 709 is in Python.",
    ),
    (
        r"(mT is only supported|at least 2.?dim|at least two dim)",
        "`.mT` swaps the last two axes, and this tensor has fewer than two.",
    ),
    (
        r"(numel\(\) == 0|empty tensor|empty sequence|arg is empty)",
        "There is nothing in it: is a slice empty, or a size 0?",
    ),
    (
        r"shape of the mask .* does not match the shape of the indexed tensor",
        "A boolean index must have the sizes of the first axes of what it indexes: it is not broadcast. "
        "`masked_fill` and `torch.where` broadcast theirs.",
    ),
    (
        r"[Ss]ubtract(ion)?, the `-` operator,",
        "Booleans cannot be subtracted: `~mask` inverts a mask, and `mask.float()` converts it to numbers.",
    ),
    (
        r"only integer tensors of a single element",
        "A size or an index must be one whole number; this tensor is not.",
    ),
    (
        r"(could not infer output dtype|only support floating.point)",
        "A mean or a standard deviation needs floating-point numbers, not integers or booleans: "
        "`.float()` converts them.",
    ),
    (
        r"Expected target size",
        "`cross_entropy` needs the vocabulary on axis 1 of the logits, (batch, vocab, n), beside tokens "
        "(batch, n). Or flatten both: (batch * n, vocab) beside (batch * n,).",
    ),
    (r"RecursionError", "The function calls itself endlessly."),
    (r"ZeroDivisionError", "A division by zero: which of the sizes can be 0?"),
    (
        r"ValueError: math domain",
        "This number has no root or logarithm. If it is a probability: a very small one is "
        "rounded to 0. `log_softmax` gives its logarithm directly.",
    ),
    (
        r"a leaf Variable that requires grad",
        "It changes a tensor that it is given: make a `clone()` first.",
    ),
    (
        r"modified by an inplace operation",
        "A result that the gradient still needs is overwritten: use a new name.",
    ),
    (r"Sizes of tensors must match except", "`cat` needs equal sizes on all axes but the one that it joins."),
    (r"stack expects each tensor to be equal size", "`stack` needs tensors of one shape."),
    (
        r"(unsupported operand type\(s\) for \^|bitwise_xor)",
        XOR,
    ),
    (
        r"unsupported operand type\(s\) for .*: '(\w+)' and '(\w+)'",
        "These two things cannot be combined like this.",
    ),
    (
        r"ValueError: (\w+): expected ",
        lambda f, *_: (
            f"A function of mha_lab rejects its argument `{f.group(1)}`: its message says what it expects."
        ),
    ),
]
