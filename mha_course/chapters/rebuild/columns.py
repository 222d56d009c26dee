"""Where the numbers of queries, keys and values come from, as columns of a bank."""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from mha_course.chapters.observe import Call
from mha_course.chapters.rebuild.parts import Projection, Unit

ONE = 1e-9  # 1 - cosine of two columns of numbers that are one column, or a multiple of it
CLOSE = 3e-5  # of what was computed in float32 in two ways, beside the largest number


class NotCovered(ValueError):
    """Why a layer cannot be rebuilt, in a few words."""


class View:
    """A call with its tensors in one order of axes: batch, heads, tokens, width."""

    PARTS = ("query", "key", "value", "scores", "weights", "context")

    def __init__(self, call: Call) -> None:
        self.call = call
        kinds = [kind for kind, *_ in call.steps]
        if kinds.count("softmax") > 1:
            raise NotCovered("several softmaxes")
        at = kinds.index("softmax")
        _, scores, weights, _ = call.steps[at]
        n_q, self.n_k = scores.shape[-2:]
        before = [
            s
            for s in call.steps[:at]
            if s[0] == "product"
            and s[3].shape[-2] == n_q
            and s[3].shape[-1] in (self.n_k, self.n_k - 1)
            and s[3].numel() // s[3].shape[-1] == scores.numel() // self.n_k
        ]
        after = [
            s
            for s in call.steps[at:]
            if s[0] == "product" and s[1].shape[-2] == n_q and s[2].shape[-1] in (self.n_k, self.n_k - 1)
        ]
        if not before or not after:
            raise NotCovered("other scores")
        (_, query, key, _), (_, _, value, context) = before[0], after[0]
        self.n_q, self.n_k = n_q, key.shape[-2]
        self.batch = self._batch(scores)
        self.query, self.key, self.scores, self.weights, self.context = map(
            self._heads, (query, key, scores, weights, context)
        )
        self.value = self._heads(value.mT)
        heads = self.scores.shape[1]
        self.query, self.key, self.value = (
            x.expand(-1, heads, -1, -1) for x in (self.query, self.key, self.value)
        )

    def _batch(self, scores: Tensor) -> int:
        if scores.ndim > 3:
            return math.prod(scores.shape[:-3])
        for x in self.call.inputs.values():
            tokens = x.numel() // x.shape[-1]
            if x.is_floating_point() and x.ndim > 2 and tokens % self.n_q == 0:
                return tokens // self.n_q
        return 1

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(self.batch, -1, *x.shape[-2:])

    def tokens(self, x: Tensor, n: int) -> Tensor | None:
        """``(batch, n, columns)``, whatever order the axes of ``x`` have; ``None`` if it is no such thing."""
        b, shape = self.batch, tuple(x.shape)
        if shape[:2] == (b, n):
            return x.reshape(b, n, -1)
        if len(shape) == 4 and (shape[0], shape[2]) == (b, n):
            return x.transpose(1, 2).reshape(b, n, -1)
        if shape[:2] == (n, b):
            return x.transpose(0, 1).reshape(b, n, -1)
        if len(shape) > 2 and shape[0] == b and math.prod(shape[1:-1]) == n:
            return x.reshape(b, n, -1)
        if shape[0] == b * n or (len(shape) > 2 and math.prod(shape[:-1]) == b * n):
            return x.reshape(b, n, -1)
        if len(shape) > 2 and shape[0] == b and math.prod(shape[2:]) == n:
            return x.reshape(b, -1, n).mT
        return None

    def masks(self) -> Iterator[tuple[str, Tensor]]:
        """The masks among the inputs, as booleans that fit the scores."""
        for name, x in self.call.inputs.items():
            if "mask" in name:
                x = (
                    x
                    if x.dtype == torch.bool
                    else x > -50
                    if x.is_floating_point() and x.min() < 0
                    else x > 0
                    if x.any()
                    else x == 0
                )
                if x.ndim == 3 and x.shape[1:] == (self.n_q, self.n_k) and self.batch % len(x) == 0:
                    x = x.repeat(self.batch // len(x), 1, 1)[:, None]  # one for each window of a picture
                x = (
                    x[:, None, None]
                    if x.shape == (self.batch, self.n_k) and x.shape != (self.n_q, self.n_k)
                    else x
                )
                try:
                    yield name, x.expand(self.batch, -1, self.n_q, self.n_k)
                except RuntimeError:
                    continue

    def source(self, names: Sequence[str], n: int) -> Tensor | None:
        """An input, the sum of two (``"+"`` stands before their names), or one after the other (``","``)."""
        found = [self.call.inputs.get(name) for name in names if name not in "+,"]
        if any(x is None or not x.is_floating_point() for x in found):
            return None
        if names[0] == ",":
            if (
                any(x.ndim != 3 or len(x) != self.batch for x in found)
                or found[0].shape[2] != found[1].shape[2]
            ):
                return None
            return None if found[0].shape[1] + found[1].shape[1] != n else torch.cat(found, dim=1)
        found = [self.tokens(x, n) for x in found]
        if any(x is None or x.shape[-1] != found[0].shape[-1] for x in found):
            return None
        return sum(found)


class Bank:
    """Every number that a token has on its way to query, key and value, as columns, and how it is made."""

    def __init__(self, views: Sequence[View], n: int) -> None:
        self.columns = torch.empty(0)
        self.roots: list[tuple[tuple[str, ...], int, int]] = []
        self.nodes: list[
            tuple[nn.Module, Tensor | None, int, int, bool]
        ] = []  # and first column, whether it holds everywhere
        self.views, self.n = views, n
        for name in views[0].call.inputs:
            self._root((name,))
        for parts in zip(*(view.call.parts for view in views), strict=True):
            self._node(parts)

    def _add(self, columns: Tensor) -> int:
        start = self.columns.shape[-1] if self.columns.numel() else 0
        self.columns = torch.cat([self.columns, columns], dim=-1) if start else columns
        return start

    def _root(self, names: tuple[str, ...], like: Tensor | None = None) -> bool:
        """Whether there is such a source (that equals ``like``); then it is added."""
        columns = [view.source(names, self.n) for view in self.views]
        if any(x is None for x in columns):
            return False
        columns = torch.cat(columns)
        if like is not None and (columns.shape != like.shape or not torch.allclose(columns, like, atol=1e-6)):
            return False
        self.roots.append((names, self._add(columns), columns.shape[-1]))
        return True

    def _node(self, parts: Sequence[tuple[nn.Module, Tensor, Tensor]]) -> None:
        module = parts[0][0]
        given, made = (
            [v.tokens(p[i], self.n) for v, p in zip(self.views, parts, strict=True)] for i in (1, 2)
        )
        if any(x is None for x in (*given, *made)):
            return
        given, made = torch.cat(given), torch.cat(made)
        width = parts[0][1].shape[-1]
        groups = given.shape[-1] // width if given.shape[-1] % width == 0 else 1
        part = copied(module, given.unflatten(-1, (groups, -1)), made)
        if part is None:
            return
        found = self.find(given)
        if found is None:
            inputs = self.views[0].call.inputs
            pairs = [(how, *pair) for how in "+," for pair in itertools.permutations(inputs, 2)]
            if any(self._root(names, given) for names in pairs):
                found = self.find(given)
        reads = None if found is None or (found[1] - 1).abs().max() > 1e-6 else found[0]
        self.nodes.append((part, reads, groups, self._add(made), found is not None and found[2]))

    def find(self, target: Tensor) -> tuple[Tensor, Tensor, bool] | None:
        """For each column: which one of the bank it is, times what, and if at all tokens or only one."""
        if not self.columns.numel():
            return None
        for everywhere in (True, False):
            if not everywhere and (self.columns[:, 0] - self.columns[:1, 0]).abs().max() < 1e-6:
                raise NotCovered("the same in each call")  # a learned token comes first
            a, b = ((x if everywhere else x[:, :1]).flatten(0, 1) for x in (target, self.columns))
            some = slice(None, None, max(1, len(a) // 64))  # enough to tell columns apart
            a, b = a[some].double(), b[some].double()
            norms = [x.norm(dim=0).clamp(min=1e-12) for x in (a, b)]
            likeness = (a / norms[0]).mT @ (b / norms[1])
            best, index = likeness.abs().max(dim=1)
            if (best > 1 - ONE).all():
                sign = likeness.gather(1, index[:, None])[:, 0].sign()
                return index, (sign * norms[0] / norms[1][index]).float(), everywhere
        return None

    def add_units(self, width: int) -> None:
        """Heads of length 1, of every linear map."""
        for module, _, _, start, _ in list(self.nodes):
            if isinstance(module, nn.Linear) and module.out_features % width == 0:
                reads = torch.arange(start, start + module.out_features)
                groups = module.out_features // width
                made = Unit()(self.columns[..., reads].unflatten(-1, (groups, -1))).flatten(-2)
                self.nodes.append((Unit(), reads, groups, self._add(made), True))


class Found:
    """Queries, keys or values of all heads, as columns of a bank."""

    def __init__(self, bank: Bank, heads: Tensor, name: str) -> None:
        self.bank, self.heads, self.width = bank, heads.shape[1], heads.shape[-1]
        target = heads.transpose(1, 2).flatten(2)
        found = bank.find(target)
        if found is None:
            bank.add_units(self.width)
            found = bank.find(target)
        if found is None:
            raise NotCovered("more than a projection")
        self.index, self.factors, self.everywhere = found
        self.factors = torch.where((self.factors - 1).abs() < 1e-6, 1.0, self.factors)
        self.before = self._raw()

    def _raw(self) -> nn.Module | None:
        """The norm of each head that comes after positions, if any; then ``index`` is what it reads."""
        node = next((n for n in self.bank.nodes if self._within(n, self.index)), None)
        if node is None or node[4] or node[1] is None or isinstance(node[0], nn.Linear):
            return None
        module, reads, _, start, _ = node
        self.index, self.everywhere = reads[self.index - start], False
        return module

    @staticmethod
    def _within(node: tuple, index: Tensor) -> bool:
        size = (
            node[0].out_features
            if isinstance(node[0], nn.Linear)
            else len(node[1])
            if node[1] is not None
            else 0
        )
        return bool(((index >= node[3]) & (index < node[3] + size)).all())

    def plain(self) -> Tensor:
        """``(batch, heads, n, width)``, before positions."""
        return (
            (self.bank.columns[..., self.index] * self.factors)
            .unflatten(-1, (self.heads, -1))
            .transpose(1, 2)
        )

    def take(self, columns: Tensor, heads: int) -> None:
        """Only these columns, or in this order."""
        self.index, self.factors, self.heads = self.index[columns], self.factors[columns], heads

    def keys(self) -> list[tuple]:
        """For each head, what it is, to see which heads are one."""
        both = zip(self.index.split(self.width), self.factors.split(self.width), strict=True)
        return [(*i.tolist(), *(round(f, 5) for f in fs.tolist())) for i, fs in both]

    def build(self) -> tuple[tuple[str, ...], int, nn.Module, list[nn.Module]]:
        """The names of the input, its width, the projection, and its parts."""
        needed, todo = [], [self.index]
        roots = set()
        while todo:
            columns = todo.pop()
            for i, (_, start, width) in enumerate(self.bank.roots):
                if ((columns >= start) & (columns < start + width)).any():
                    roots.add(i)
            for i, node in enumerate(self.bank.nodes):
                size = _size(node)
                if ((columns >= node[3]) & (columns < node[3] + size)).any() and i not in needed:
                    if node[1] is None or not node[4]:
                        raise NotCovered("more than a projection")
                    needed.append(i)
                    todo.append(node[1])
        if len(roots) != 1:
            raise NotCovered("more than a projection")
        names, start, width = self.bank.roots[roots.pop()]
        nodes = [self.bank.nodes[i] for i in sorted(needed)]
        modules = [node[0] for node in nodes]
        if (
            len(nodes) == 1
            and isinstance(nodes[0][0], nn.Linear)
            and torch.equal(nodes[0][1] - start, torch.arange(width))
        ):
            return names, width, _rows(nodes[0][0], self.index - nodes[0][3], self.factors), modules
        place = torch.full((self.bank.columns.shape[-1],), -1)
        place[start : start + width] = torch.arange(width)
        parts = []
        for node in nodes:
            parts.append((node[0], place[node[1]], node[2]))
            place[node[3] : node[3] + _size(node)] = (
                torch.arange(_size(node)) + width + sum(map(_size, nodes[: len(parts) - 1]))
            )
        return names, width, Projection(parts, place[self.index], self.factors), modules


def _size(node: tuple) -> int:
    return (
        node[0].out_features if isinstance(node[0], nn.Linear) else len(node[1]) if node[1] is not None else 0
    )


def _rows(linear: nn.Linear, index: Tensor, factors: Tensor) -> nn.Linear:
    """Some rows of a linear map, times numbers."""
    made = nn.Linear(linear.in_features, len(index), bias=linear.bias is not None)
    made.weight.data = linear.weight.data[index] * factors[:, None]
    if linear.bias is not None:
        made.bias.data = linear.bias.data[index] * factors
    return made


def copied(module: nn.Module, given: Tensor, made: Tensor) -> nn.Module | None:
    """A linear map or a norm as PyTorch's module of the same numbers; ``None`` if it is neither."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    bias = bias if isinstance(bias, Tensor) else None
    one = isinstance(module, nn.Conv1d | nn.Conv2d) and set(module.kernel_size + module.stride) == {1}
    if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D" or one:
        weight = torch.block_diag(*weight.detach().flatten(1).chunk(module.groups if one else 1))
        weight = weight.mT if type(module).__name__ == "Conv1D" else weight
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        linear.weight.data = weight.clone()
        if bias is not None:
            linear.bias.data = bias.detach().clone()
        return linear
    width = given.shape[-1]
    eps = next(
        (getattr(module, name) for name in ("eps", "variance_epsilon", "epsilon") if hasattr(module, name)),
        None,
    )
    if made.shape != given.flatten(-2).shape or not (eps or "orm" in type(module).__name__):
        return None
    gains = [torch.ones(width)] if weight is None else [weight, 1 + weight]
    for gain in gains:
        if gain.shape != (width,):
            continue
        for norm in (nn.RMSNorm(width, eps=eps or 1e-6), nn.LayerNorm(width, eps=eps or 1e-5)):
            norm.weight.data = gain.detach().clone().float()
            if bias is not None and isinstance(norm, nn.LayerNorm):
                norm.bias.data = bias.detach().clone()
            if torch.allclose(norm(given).flatten(-2), made, atol=1e-5, rtol=1e-5):
                return norm
    return None
