"""The attention of any published layer as ``MultiHeadAttention``, found by watching it run.

``rebuild`` reads from some calls where queries, keys and values come from. The layer that it returns holds
copies of the weights of projections and norms, and computes from the inputs alone. Frequencies or angles,
biases of scores, sinks, and factors by token are measured in the calls: they do not depend on the text.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mha_course._expect import instance
from mha_course.chapters.modern import ModernAttention
from mha_course.chapters.observe import Call
from mha_lab import _expect as expect
from mha_lab.masks import causal_mask
from mha_lab.positions import Rotary
from mha_lab.scores import AlibiScore, RelativePositionBias, SoftcappedScore, TransformSequence

ONE = 1e-9  # 1 - cosine of two columns of numbers that are one column, or a multiple of it
CLOSE = 3e-5  # of what was computed in float32 in two ways, beside the largest number


class NotCovered(ValueError):
    """Why a layer cannot be rebuilt, in a few words."""


class Projection(nn.Module):
    """Copies of linear maps and norms, each of which reads columns of the input or of earlier ones.

    Args:
        parts: a module, the columns that it reads, and into how many groups these are split.
        columns, factors: which columns are the result, and times what.
    """

    def __init__(
        self, parts: Sequence[tuple[nn.Module, Tensor, int]], columns: Tensor, factors: Tensor
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part for part, *_ in parts)
        self.reads, self.groups = [reads for _, reads, _ in parts], [groups for *_, groups in parts]
        self.register_buffer("columns", columns)
        self.register_buffer("factors", factors)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., width)`` to ``(..., len(columns))``."""
        for part, reads, groups in zip(self.parts, self.reads, self.groups, strict=True):
            x = torch.cat([x, part(x[..., reads].unflatten(-1, (groups, -1))).flatten(-2)], dim=-1)
        return x[..., self.columns] * self.factors


class Each(nn.Module):
    """A transform by one module for queries and another for keys."""

    def __init__(self, query: nn.Module, key: nn.Module) -> None:
        super().__init__()
        self.query, self.key = query, key

    def forward(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """The same shapes."""
        return self.query(query), self.key(key)


class Angles(nn.Module):
    """Turns the first numbers of each token by given angles, ``(n, pairs)``: positions on several axes."""

    def __init__(self, angles: Tensor, layout: str) -> None:
        super().__init__()
        self.layout = layout
        self.register_buffer("angles", angles)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        pairs = self.angles.shape[-1]
        x, rest = x.tensor_split([2 * pairs], dim=-1)
        x = torch.view_as_complex(_pairs(x, self.layout).contiguous())
        turned = torch.view_as_real(x * torch.polar(torch.ones_like(self.angles), self.angles))
        turned = turned.flatten(-2) if self.layout == "pairs" else turned.mT.flatten(-2)
        return torch.cat([turned, rest], dim=-1)


class Times(nn.Module):
    """Multiplies by numbers that do not change: one for each head and token."""

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * self.factor


class Unit(nn.Module):
    """``x / |x|``."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return nn.functional.normalize(x, dim=-1)


class BiasedScore(nn.Module):
    """Scaled dot product plus a given number for each head, query and key."""

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.num_heads = len(bias)
        self.register_buffer("bias", bias)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``(..., heads, n_q, d_k)`` and ``(..., heads, n_k, d_k)`` to scores."""
        return query @ key.mT / math.sqrt(query.shape[-1]) + self.bias


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
        part = _copied(module, given.unflatten(-1, (groups, -1)), made)
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


@dataclass
class Rebuilt:
    """A layer, the names of what its original gets that it reads, and what it has."""

    layer: ModernAttention
    sources: tuple[tuple[str, ...], ...]
    mask: tuple[str, Any, dict[str, bool]]
    out: int | None
    features: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def difference(self, call: Call) -> tuple[float, float]:
        """The largest difference from the original's output in ``call``, and the largest number there."""
        view = View(call)
        query, key, value = (
            view.source(names, n)
            for names, n in zip(self.sources, (view.n_q, view.n_k, view.n_k), strict=True)
        )
        mask = _mask(self.mask, view)
        ours, _ = self.layer(query, key, value, mask=mask)
        theirs = view.tokens(call.output if self.out is None else call.parts[self.out][2], view.n_q)
        if theirs is None or theirs.shape != ours.shape:
            raise NotCovered("other output")
        sees = mask.any(-1).any(1)[..., None].expand(len(ours), view.n_q, 1)
        return ((ours - theirs) * sees).abs().max().item(), (theirs * sees).abs().max().item()


@torch.no_grad()
def rebuild(calls: Sequence[Call]) -> Rebuilt:
    """A layer of this package that computes what the module of ``calls`` does.

    Args:
        calls: what ``observed`` saw of one module that got random inputs of one shape, at least twice.

    Raises:
        TypeError: ``calls`` has something else than calls.
        ValueError: they are fewer than two, or of several modules.
        NotCovered: the module does something else than our layer can; the message says what.
    """
    for call in calls:
        instance("calls", call, Call)
    if len(calls) < 2 or len({id(call.module) for call in calls}) > 1:
        got = f"{len(calls)} of {len({id(call.module) for call in calls})} modules"
        hint = "Does the module compute attention itself?"
        expect.fail(ValueError, "calls", "two calls or more of one module", got, hint)
    views = [View(call) for call in calls]
    query, key, value, scores, weights, context = (
        torch.cat([getattr(v, name) for v in views]) for name in View.PARTS
    )
    heads, d_k, d_v, n_q, n_k = query.shape[1], query.shape[-1], value.shape[-1], query.shape[2], key.shape[2]
    bank_q = Bank(views, n_q)
    bank_k = bank_q if n_q == n_k else Bank(views, n_k)
    v = Found(bank_k, value, "value")
    q, k = Found(bank_q, query, "query"), Found(bank_k, key, "key")
    if not v.everywhere:
        raise NotCovered("more than a projection")
    transforms, positions = _positions(q, k, query, key)
    kv_heads = _share(heads, k, v)
    seen = weights[..., :n_k] > 1e-30  # some masks add -100
    cap = _soft_cap(calls[0].module, scores, query @ key.mT, seen)
    raw = scores[..., :n_k]
    factor, bias, shift = _affine(query @ key.mT, raw if cap is None else cap * torch.atanh(raw / cap), seen)
    score, kind = (None, None) if cap is None else (SoftcappedScore(cap), None)
    if cap is None:
        score, kind = _score(bias, seen.any(0))
    sinks = None
    if scores.shape[-1] > n_k:
        sinks = (scores[..., -1] - shift).mean((0, 2))
        if ((scores[..., -1] - shift) - sinks[:, None]).abs().max() > 1e-4:
            raise NotCovered("other sinks")
    if (ratio := _head_factors(views, context)) is not None:  # sinks, as a factor after the softmax
        total = raw.masked_fill(~seen, -math.inf).logsumexp(-1) - shift.mean()
        found = (total - torch.logit(ratio)).transpose(0, 1).flatten(1).median(dim=1).values
        if (torch.sigmoid(total - found[:, None]) - ratio).abs().max() < CLOSE:
            context, sinks = context * ratio[..., None], found
    scale = factor * math.sqrt(d_k)
    if scale.shape[1] > 1 or q.before is not None:
        transforms.append(Each(Times(scale[..., None]), nn.Identity()))
    else:
        q.factors = q.factors * scale.expand(heads, 1).reshape(-1).repeat_interleave(d_k)
    out, number, gate, norm, at = _output(views, bank_q, context)
    (
        (names_q, width_q, q_proj, used_q),
        (names_k, width_k, k_proj, used_k),
        (names_v, width_v, v_proj, used_v),
    ) = (one.build() for one in (q, k, v))
    layer = ModernAttention(
        out.out_features, heads, d_k=d_k, d_v=d_v, num_kv_heads=kv_heads, qdim=width_q, kdim=width_k,
        vdim=width_v, sinks=sinks is not None, score=score,
        transform=TransformSequence(*transforms) if transforms else None,
    ).eval()  # fmt: skip
    layer.q_proj, layer.k_proj, layer.v_proj = q_proj, k_proj, v_proj
    layer.out_proj = out if norm is None else nn.Sequential(norm, out)
    layer.gate_proj = gate
    if sinks is not None:
        layer.sinks.data = sinks
    mask = _mask_kind(views, seen)
    norms = [part for part in used_q if not isinstance(part, nn.Linear)]
    linear = [[id(part) for part in used if isinstance(part, nn.Linear)] for used in (used_q, used_k, used_v)]
    features = positions | {
        "heads": heads, "kv_heads": kv_heads, "d_k": d_k, "d_v": d_v, "mask": mask[0],
        "sinks": sinks is not None,
        "window": mask[1] if mask[0] in ("window", "chunk") else None,
        "cap": cap, "gate": gate is not None, "bias": kind, "scale": _named(factor, d_k),
        "norm": type(q.before or (norms or [None])[-1]).__name__.replace("NoneType", ""),
        "packed": bool(linear[0]) and linear[0][-1:] == linear[2][-1:],
        "latent": len(linear[1]) > 1, "cross": names_q != names_k and n_q != n_k,
        "linear_bias": getattr(q_proj, "bias", None) is not None,
        "output": "none" if number is None else "norm, linear" if norm else "linear",
    }  # fmt: skip
    return Rebuilt(layer, (names_q, names_k, names_v), mask, at, features)


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


def _copied(module: nn.Module, given: Tensor, made: Tensor) -> nn.Module | None:
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


def _pairs(x: Tensor, layout: str) -> Tensor:
    """``(..., width)`` to ``(..., pairs, 2)``."""
    return x.unflatten(-1, (-1, 2)) if layout == "pairs" else x.unflatten(-1, (2, -1)).mT


def _positions(q: Found, k: Found, query: Tensor, key: Tensor) -> tuple[list[nn.Module], dict[str, Any]]:
    """What turns queries and keys after their projections, and the norms after that."""
    if q.everywhere and k.everywhere:
        return [], {"positions": None}
    after = [] if q.before is None else [Each(q.before, k.before)]
    if (q.before is None) != (k.before is None):
        raise NotCovered("other positions")
    if after:
        query, key = (_unnormed(f, x) for f, x in ((q, query), (k, key)))
        if any((one.factors != 1).any() for one in (q, k)):
            after.append(Each(*(Times(one.factors.unflatten(0, (one.heads, 1, -1))) for one in (q, k))))
            q.factors, k.factors = torch.ones_like(q.factors), torch.ones_like(k.factors)
    else:
        lengths = [_lengths(one.plain(), x) for one, x in ((q, query), (k, key))]
        if any((x - 1).abs().max() > 1e-5 for x in lengths):
            query, key = query / lengths[0], key / lengths[1]
            after = [Each(*map(Times, lengths))]
            if all(
                (one.plain() - x).abs().max() < CLOSE * x.abs().max() for one, x in ((q, query), (k, key))
            ):
                return after, {"positions": None, "temperature": True}
    found = _angles(q.plain(), query, normed=q.before is not None)
    if found is None and not after:
        factors = [one.factors.unflatten(0, (one.heads, 1, -1)) for one in (q, k)]
        q.factors, k.factors = torch.ones_like(q.factors), torch.ones_like(k.factors)
        query, key = query / factors[0], key / factors[1]
        after = [Each(*map(Times, factors))]
        found = _angles(q.plain(), query, normed=False)
    if found is None:
        raise NotCovered("other positions")
    normed = q.before is not None
    order, layout, angles = found
    other = _angles_in(k.plain(), key, order, layout, normed, 2 * angles.shape[1])
    if other is None:
        raise NotCovered("other positions")
    width = q.width
    if not torch.equal(order, torch.arange(width)):
        if after:
            raise NotCovered("other positions")
        for one in (q, k):
            one.take((torch.arange(one.heads)[:, None] * width + order).flatten(), one.heads)
    pairs = angles.shape[1]
    told = {
        "temperature": bool(after) and q.before is None,
        "layout": layout,
        "share": round(2 * pairs / width, 3),
    }
    frequencies = _frequencies(angles, other)
    if frequencies is not None:
        return [Rotary(frequencies=frequencies, layout=layout), *after], told | {
            "positions": "rotary", "base": _base(frequencies)
        }  # fmt: skip
    each = Each(Angles(angles, layout), Angles(other, layout))
    return [each, *after], told | {"positions": "rotary, given angles"}


def _lengths(plain: Tensor, x: Tensor) -> Tensor:
    """By what each token is multiplied, ``(n, 1)``; 1 if that differs between heads."""
    ratio = x.norm(dim=-1) / plain.norm(dim=-1)
    mean = ratio.mean((0, 1))
    return mean[:, None] if (ratio / mean - 1).abs().max() < 1e-4 else torch.ones(len(mean), 1)


def _unnormed(found: Found, x: Tensor) -> Tensor:
    """What a norm was given, but for its length: the gain and the bias taken back."""
    gain, bias = found.before.weight, getattr(found.before, "bias", None)
    return (x / found.factors.unflatten(0, (found.heads, 1, -1)) - (0 if bias is None else bias)) / gain


def _angles(plain: Tensor, turned: Tensor, normed: bool) -> tuple[Tensor, str, Tensor] | None:
    """In which order the numbers are pairs, in which layout, and each token's angles."""
    width = plain.shape[-1]
    dims = torch.arange(width)
    for size in range(width - width % 2, 0, -2):
        for start in {0, width - size}:
            order = torch.cat([dims[start : start + size], dims[:start], dims[start + size :]])
            for layout in ("halves", "pairs"):
                angles = _angles_in(plain, turned, order, layout, normed, size)
                if angles is not None and layout == "pairs":  # those that do not turn do not count
                    turning = (angles.abs().amax(0) > 1e-6).nonzero()[:, 0].tolist() or [0]
                    first, last = turning[0], turning[-1] + 1
                    order = torch.cat([order[2 * first : 2 * last], order[: 2 * first], order[2 * last :]])
                    return order, layout, angles[:, first:last]
                if angles is not None:
                    return order, layout, angles
    return _any_pairs(plain, turned, normed)


def _any_pairs(plain: Tensor, turned: Tensor, normed: bool) -> tuple[Tensor, str, Tensor] | None:
    """Pairs of any two numbers: the sum of their squares stays."""
    change = (turned.double() ** 2 - plain.double() ** 2).flatten(0, 2)
    size = change.norm(dim=0)
    moving = (size > 1e-4 * size.max()).nonzero()[:, 0].tolist()
    unit = change / size.clamp(min=1e-12)
    likeness = unit.mT @ unit
    firsts, seconds = [], []
    while moving:
        a = moving.pop(0)
        b = min(moving, key=lambda d: likeness[a, d].item(), default=None)
        if b is None or likeness[a, b] > -0.999:
            return None
        moving.remove(b)
        firsts.append(a)
        seconds.append(b)
    order = torch.tensor(
        [*firsts, *seconds, *(d for d in range(plain.shape[-1]) if d not in (*firsts, *seconds))]
    )
    angles = _angles_in(plain, turned, order, "halves", normed, 2 * len(firsts)) if firsts else None
    return None if angles is None else (order, "halves", angles)


def _angles_in(
    plain: Tensor, turned: Tensor, order: Tensor, layout: str, normed: bool, size: int
) -> Tensor | None:
    """Each token's angles, ``(n, pairs)``, if the numbers are turned in this order and layout."""
    a, b = plain[..., order], turned[..., order]
    if normed:
        a, b = (x / x.norm(dim=-1, keepdim=True) for x in (a, b))
    close = CLOSE * b.abs().max()
    if ((a[..., size:] - b[..., size:]).abs() > close).any():
        return None
    x, y = (torch.view_as_complex(_pairs(one[..., :size].double(), layout).contiguous()) for one in (a, b))
    turn = (y * x.conj()).sum((0, 1))
    angles = turn.angle()
    if ((x * torch.polar(torch.ones_like(angles), angles) - y).abs() > close).any():
        return None
    return angles.float()


def _frequencies(*angles: Tensor) -> Tensor | None:
    """The angle from each position to the next, if the tokens are at 0, 1, 2, ..."""
    found = []
    for one in angles:
        if len(one) < 2:
            return None
        at, speed = torch.arange(len(one)).double(), one[1].double()
        for m in range(1, len(one)):
            whole = torch.round((m * speed - one[m]) / (2 * math.pi))
            speed = speed + ((one[m] + 2 * math.pi * whole) / m - speed) * m / (m + 1)
        wrong = at[:, None] * speed - one
        if (wrong - 2 * math.pi * torch.round(wrong / (2 * math.pi))).abs().max() > 1e-4:
            return None
        found.append(speed)
    if any((found[0] - other).abs().max() > 1e-5 for other in found):
        return None
    return torch.stack(found).mean(0).float()


def _base(frequencies: Tensor) -> float | None:
    """``b``, if the frequencies are ``b ** (-i / pairs)``, in three figures, since they were measured."""
    pairs = len(frequencies)
    speed = frequencies.abs().double()
    if pairs < 2 or (speed[0] - 1).abs() > 1e-4:
        return None
    base = float(speed[1] ** -pairs)
    same = (speed - base ** (-torch.arange(pairs) / pairs)).abs().max() < 1e-4
    return float(f"{base:.3g}") if same else None


def _share(heads: int, k: Found, v: Found) -> int:
    """How many heads keys and values have; then only these are left."""
    keys, values = k.keys(), v.keys()
    groups = len(set(zip(keys, values, strict=True)))
    step = heads // groups if heads % groups == 0 else 1
    both = list(zip(keys, values, strict=True))
    if any(both[h] != both[h // step * step] for h in range(heads)):
        step = 1
    for one in (k, v):
        chosen = torch.arange(0, heads, step)[:, None] * one.width + torch.arange(one.width)
        one.take(chosen.flatten(), heads // step)
    return heads // step


def _soft_cap(module: nn.Module, scores: Tensor, product: Tensor, seen: Tensor) -> float | None:
    """The cap of the scores, if an attribute of the layer or its configuration is one and fits."""
    for owner in (module, getattr(module, "config", None)):
        for name, value in vars(owner).items() if owner is not None else ():
            if ("softcap" in name or "logit_cap" in name) and isinstance(value, int | float) and value:
                raw = scores[..., : product.shape[-1]]
                inner = value * torch.atanh(raw / value)
                if (
                    inner[seen].isfinite().all()
                    and not _fits(product, raw, seen)
                    and _fits(product, inner, seen)
                ):
                    return float(value)
    return None


def _fits(product: Tensor, scores: Tensor, seen: Tensor) -> bool:
    try:
        return bool(_affine(product, scores, seen))
    except NotCovered:
        return False


def _affine(product: Tensor, scores: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``scores = factor · product + bias + shift``.

    The factor is ``(heads, 1 or n_q)``, the bias ``(heads, n_q, n_k)``, the shift ``(batch, heads, n_q)``.
    """
    same = (seen == seen[:1]).all()
    s, x = (torch.where(seen, one.double(), 0.0) for one in (product, scores))
    count, often = seen.sum(-1, keepdim=True).clamp(min=1), seen.sum(0).clamp(min=1)
    if torch.where(seen, s - s.sum(0) / often, 0.0).abs().max() < 1e-3 * s.abs().max():
        raise NotCovered("the same in each call")
    for centred in (False, True) if same else (False,):
        ds, dx = (torch.where(seen, one - one.sum(0) / often, 0.0) for one in (s, x))
        if centred:
            ds, dx = (torch.where(seen, one - one.sum(-1, keepdim=True) / count, 0.0) for one in (ds, dx))
        top, below = (ds * dx).sum((0, 3)), (ds * ds).sum((0, 3))
        factor = top / below.clamp(min=1e-12)
        whole = top.sum(1, keepdim=True) / below.sum(1, keepdim=True).clamp(min=1e-12)
        for one in (whole.mean(0, keepdim=True).expand_as(whole), whole, factor):
            left = (dx - one[None, :, :, None] * ds).abs().max()
            if left < CLOSE * dx.abs().max().clamp(min=1e-3):
                bias = torch.where(seen, x - one[None, :, :, None] * s, 0.0)
                shift = bias.sum(-1) / count[..., 0] if centred else torch.zeros(bias.shape[:3])
                bias = torch.where(seen, bias - shift[..., None], 0.0).sum(0) / often
                if bias.abs().max() < CLOSE * x.abs().max():
                    bias = torch.zeros_like(bias)
                return one.float(), bias.float(), shift.float()
    raise NotCovered("other scores")


def _score(bias: Tensor, seen: Tensor) -> tuple[nn.Module | None, str | None]:
    """A score with this bias: the plainest kind that fits where it is seen."""
    if not bias.any():
        return None, None
    heads, n_q, n_k = bias.shape

    def fits(score: nn.Module) -> bool:
        zero = torch.zeros(1, heads, 1, 1)
        made = score(zero.expand(1, heads, n_q, 1), zero.expand(1, heads, n_k, 1))[0]
        left = torch.where(seen, made - bias, 0.0)
        left = left - left.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
        return bool(torch.where(seen, left, 0.0).abs().max() < 1e-4)

    if n_q <= n_k and fits(alibi := AlibiScore(heads)):
        return alibi, "ALiBi"
    relative = RelativePositionBias(heads, max(n_q, n_k))
    for distance in range(1 - n_q, n_k):
        one, sees = (torch.diagonal(x, distance, -2, -1) for x in (bias, seen))
        at = (
            min(max(distance - (n_k - n_q), -relative.max_distance), relative.max_distance)
            + relative.max_distance
        )
        relative.bias.data[:, at] = (one * sees).sum(-1) / sees.sum(-1).clamp(min=1)
    if fits(relative):
        return relative, "relative"
    return BiasedScore(bias), "table"


def _output(
    views: Sequence[View], bank: Bank, context: Tensor
) -> tuple[nn.Linear, int | None, nn.Module | None, nn.Module | None, int | None]:
    """The output's map, its number among the parts, the gate, a norm before it; and where to compare."""
    n = context.shape[2]
    merged = context.transpose(1, 2).flatten(2)
    width, gate, norm = merged.shape[-1], None, None
    for number, parts in enumerate(zip(*(view.call.parts for view in views), strict=True)):
        given, made = ([v.tokens(p[i], n) for v, p in zip(views, parts, strict=True)] for i in (1, 2))
        if any(x is None or x.shape[-1] != width for x in given) or any(x is None for x in made):
            continue
        given, made = torch.cat(given), torch.cat(made)
        order = None
        if torch.allclose(given, merged, atol=1e-6, rtol=1e-5):
            order = torch.arange(width)
        elif isinstance(parts[0][0], nn.Linear):
            gate = _gate(bank, given, merged)
            order = torch.arange(width) if gate is not None else _permuted(given, merged)
            if gate is not None and norm is not None:
                raise NotCovered("other output")  # our gate comes before a norm, not after it
        if order is None:
            continue
        groups = width // parts[0][1].shape[-1]
        part = _copied(parts[0][0], given.unflatten(-1, (groups, -1)), made)
        if part is None:
            continue
        if not isinstance(part, nn.Linear):
            merged, norm = (
                made,
                part if groups == 1 else nn.Sequential(nn.Unflatten(-1, (groups, -1)), part, nn.Flatten(-2)),
            )
            continue
        linear = nn.Linear(width, part.out_features, bias=part.bias is not None)
        linear.weight.data = torch.zeros_like(part.weight).index_copy(1, order, part.weight)
        linear.bias = part.bias
        outputs = [v.tokens(v.call.output, n) for v in views]
        same = all(
            x is not None and x.shape == y.shape
            for x, y in zip(outputs, made.split(views[0].batch), strict=True)
        )
        same = same and torch.allclose(torch.cat(outputs), made, atol=1e-6)
        return linear, number, gate, norm, None if same else number
    outputs = [v.tokens(v.call.output, n) for v in views]
    if all(x is not None for x in outputs) and torch.cat(outputs).shape == merged.shape:
        outputs = torch.cat(outputs)
        order = (
            torch.arange(width) if torch.allclose(outputs, merged, atol=1e-6) else _permuted(outputs, merged)
        )
        if order is not None:
            same = nn.Linear(width, width, bias=False)
            same.weight.data = torch.eye(width)[order]
            return same, None, None, norm, None
    raise NotCovered("other output")


def _head_factors(views: Sequence[View], context: Tensor) -> Tensor | None:
    """By what each head of each token is multiplied before the last linear map, ``(batch, heads, n)``."""
    n, width = context.shape[2], context.shape[1] * context.shape[3]
    for parts in zip(*(view.call.parts for view in views), strict=True):
        given = [v.tokens(p[1], n) for v, p in zip(views, parts, strict=True)]
        if isinstance(parts[0][0], nn.Linear) and all(x is not None and x.shape[-1] == width for x in given):
            ratio = torch.cat(given).unflatten(-1, (context.shape[1], -1)).transpose(1, 2) / context
            mean = ratio.median(dim=-1, keepdim=True).values
            fits = ((ratio - mean) * context).abs().max() < CLOSE * context.abs().max()
            if fits and ((mean > 0) & (mean < 1)).all() and (mean - 1).abs().min() > 1e-5:
                return mean[..., 0]
    return None


def _permuted(given: Tensor, merged: Tensor) -> Tensor | None:
    """Which column of ``merged`` each column of ``given`` is."""
    one = Bank.__new__(Bank)
    one.columns = merged
    found = one.find(given)
    if (
        found is None
        or not found[2]
        or (found[1] - 1).abs().max() > 1e-5
        or len(set(found[0].tolist())) < len(found[0])
    ):
        return None
    return found[0]


def _gate(bank: Bank, given: Tensor, merged: Tensor) -> nn.Module | None:
    """The projection whose sigmoid multiplies the heads."""
    ratio = (given.double() / merged.double()).clamp(1e-9, 1 - 1e-9)
    if not torch.allclose(ratio.float() * merged, given, atol=1e-5):
        return None
    a, b = torch.logit(ratio).flatten(0, 1), bank.columns.flatten(0, 1).double()
    at, to = a - a.mean(0), b - b.mean(0)
    best, index = ((at / at.norm(dim=0)).mT @ (to / to.norm(dim=0).clamp(min=1e-12))).max(dim=1)
    if (best < 1 - 1e-4).any() or ((at.norm(dim=0) / to.norm(dim=0)[index]) - 1).abs().max() > 1e-2:
        return None
    gate = Found.__new__(Found)
    gate.bank, gate.index, gate.factors, gate.before = bank, index, torch.ones(len(index)), None
    made, offset = gate.build()[2], (a.mean(0) - b.mean(0)[index]).float()
    if offset.abs().max() < 1e-3:
        return made
    if not isinstance(made, nn.Linear):
        raise NotCovered("other output")
    made.bias = nn.Parameter(offset if made.bias is None else made.bias.data + offset)
    return made


def _mask_kind(views: Sequence[View], seen: Tensor) -> tuple[str, Any, dict[str, bool]]:
    """A name for what queries see, the window, chunk or pattern, and which inputs say what is hidden."""
    given = dict(views[0].masks())
    by_input = [name for name, x in given.items() if (seen[: len(x)] == x).all()]
    if not (seen == seen[:1, :1]).all() and not by_input:
        raise NotCovered("sparse index")
    pattern = seen.any(0).any(0) if by_input else seen[0, 0]
    n_q, n_k = pattern.shape
    first = seen[: views[0].batch]
    given = {
        name: not (first <= x).all() if (first <= x).all() or (first <= ~x).all() else None
        for name, x in given.items()
    }
    kind, size = "own", pattern
    if pattern.all():
        kind, size = "full", None
    elif n_q <= n_k and torch.equal(pattern, causal_mask(n_q, n_k)):
        kind, size = "causal", None
    elif n_q <= n_k:
        sizes = ((kind, size) for size in range(1, n_k) for kind in ("window", "chunk", "both sides"))
        kind, size = next(
            (one for one in sizes if torch.equal(pattern, _mask_of(*one, n_q, n_k))), (kind, size)
        )
    return kind, size, given


def _mask_of(kind: str, size: Any, n_q: int, n_k: int) -> Tensor:
    if kind == "full":
        return torch.ones(n_q, n_k, dtype=torch.bool)
    if kind == "own":
        return size
    if kind == "causal":
        return causal_mask(n_q, n_k)
    if kind == "window":
        return causal_mask(n_q, n_k) & ~causal_mask(n_q, n_k).tril(n_k - n_q - size)
    at, to = torch.arange(n_k - n_q, n_k)[:, None], torch.arange(n_k)
    if kind == "chunk":
        return causal_mask(n_q, n_k) & (at // size == to // size)
    return (at - to).abs() < size


def _mask(kind: tuple[str, Any, dict[str, bool]], view: View) -> Tensor:
    """What queries see in this call: by the layer's own rule, and by the masks among its inputs."""
    mask = _mask_of(*kind[:2], view.n_q, view.n_k).expand(view.batch, 1, view.n_q, view.n_k)
    for name, x in view.masks():
        hides = kind[2].get(name, False)
        mask = mask if hides is None else mask & (~x if hides else x)
    return mask


def _named(factor: Tensor, d_k: int) -> str:
    """The scale in words."""
    if factor.shape[1] > 1 and (factor - factor[:, :1]).abs().max() > 1e-4:
        return "by token"
    if (factor - factor[:1]).abs().max() > 1e-4:
        return "by head"
    value = factor[0, 0].item()
    return "1/sqrt(d_k)" if abs(value * math.sqrt(d_k) - 1) < 1e-4 else f"{value:.4g}"
