"""The attention of four models of ``transformers`` in short, with its names, and the code of the originals.

Each class leaves out the cache, the choice between kernels and dropout. What stays is in the same order and
has the same names, so that a state dict fits both. ``compared`` runs both, where ``transformers`` is
installed. As in the originals, the model makes angles and mask, and hands them to each layer.

Source: ``transformers`` 5.23.0, ``modeling_llama.py``, ``modeling_qwen3.py``, ``modeling_gpt_neox.py`` and
``modeling_gemma2.py``.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab.masks import causal_mask, mask_to_additive, sliding_window_mask
from mha_lab.positions import rotary_frequencies


def rotate_half(x: Tensor) -> Tensor:
    """The second half with a minus, then the first half: ``(..., d)`` to ``(..., d)``."""
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """``(batch, heads, n, d)`` twice, and ``(1, n, d)`` twice."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def repeat_kv(hidden_states: Tensor, n_rep: int) -> Tensor:
    """``(batch, kv_heads, n, d)`` to ``(batch, kv_heads * n_rep, n, d)``."""
    batch, kv_heads, n, d = hidden_states.shape
    hidden_states = hidden_states[:, :, None].expand(batch, kv_heads, n_rep, n, d)
    return hidden_states.reshape(batch, kv_heads * n_rep, n, d)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Heads to ``(batch, n, heads, d)``, and the weights; in the originals, ``eager_attention_forward``."""
    key = repeat_kv(key, module.num_key_value_groups)
    value = repeat_kv(value, module.num_key_value_groups)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    weights = torch.softmax(scores + attention_mask, dim=-1)
    return (weights @ value).transpose(1, 2), weights


class LlamaAttention(nn.Module):
    """Grouped heads and rotary positions."""

    def __init__(
        self,
        *,
        hidden_size: int,
        num_attention_heads: int,
        num_key_value_heads: int,
        head_dim: int | None = None,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim or hidden_size // num_attention_heads
        self.num_key_value_groups = num_attention_heads // num_key_value_heads
        self.scaling = self.head_dim**-0.5
        self.rotary_dim, self.rope_theta = self.head_dim, rope_theta
        self.q_proj = nn.Linear(hidden_size, num_attention_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(num_attention_heads * self.head_dim, hidden_size, bias=False)

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], attention_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(batch, n, hidden_size)`` to the same, and the weights of each head."""
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        value = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        output, weights = attend(self, query, key, value, attention_mask, self.scaling)
        return self.o_proj(output.reshape(*input_shape, -1)), weights


class Qwen3Attention(LlamaAttention):
    """As Llama's, and each query and key of a head is divided by its root mean square."""

    def __init__(self, **config: int | float) -> None:
        super().__init__(**config)
        self.q_norm = nn.RMSNorm(self.head_dim, eps=1e-6)
        self.k_norm = nn.RMSNorm(self.head_dim, eps=1e-6)

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], attention_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(batch, n, hidden_size)`` to the same, and the weights of each head."""
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
        key = self.k_norm(self.k_proj(hidden_states).view(hidden_shape)).transpose(1, 2)
        value = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        output, weights = attend(self, query, key, value, attention_mask, self.scaling)
        return self.o_proj(output.reshape(*input_shape, -1)), weights


class GPTNeoXAttention(nn.Module):
    """One packed projection, and positions in the first columns of each head."""

    num_key_value_groups = 1

    def __init__(
        self,
        *,
        hidden_size: int,
        num_attention_heads: int,
        rotary_pct: float = 0.25,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.head_size = hidden_size // num_attention_heads
        self.scaling = self.head_size**-0.5
        self.rotary_dim, self.rope_theta = int(self.head_size * rotary_pct), rope_theta
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], attention_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(batch, n, hidden_size)`` to the same, and the weights of each head."""
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, 3 * self.head_size)
        qkv = self.query_key_value(hidden_states).view(hidden_shape).transpose(1, 2)
        query, key, value = qkv.chunk(3, dim=-1)
        cos, sin = position_embeddings
        rotary_dim = cos.shape[-1]
        q_rot, q_pass = query[..., :rotary_dim], query[..., rotary_dim:]
        k_rot, k_pass = key[..., :rotary_dim], key[..., rotary_dim:]
        q_rot, k_rot = apply_rotary_pos_emb(q_rot, k_rot, cos, sin)
        query = torch.cat((q_rot, q_pass), dim=-1)
        key = torch.cat((k_rot, k_pass), dim=-1)
        output, weights = attend(self, query, key, value, attention_mask, self.scaling)
        return self.dense(output.reshape(*input_shape, -1)), weights


class Gemma2Attention(LlamaAttention):
    """As Llama's, with a scale from the configuration and a cap of the scores."""

    def __init__(
        self,
        *,
        query_pre_attn_scalar: int,
        attn_logit_softcapping: float,
        sliding_window: int | None = None,
        **config: int | float,
    ) -> None:
        super().__init__(**config)
        self.scaling = query_pre_attn_scalar**-0.5
        self.attn_logit_softcapping = attn_logit_softcapping
        self.sliding_window = sliding_window

    def forward(
        self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor], attention_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """``(batch, n, hidden_size)`` to the same, and the weights of each head."""
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        value = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        cos, sin = position_embeddings
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        output, weights = attend(
            self, query, key, value, attention_mask, self.scaling, self.attn_logit_softcapping
        )
        return self.o_proj(output.reshape(*input_shape, -1)), weights


CLASSES = {
    layer.__name__: layer for layer in (LlamaAttention, Qwen3Attention, GPTNeoXAttention, Gemma2Attention)
}


def given(layer: nn.Module, n: int) -> dict[str, Tensor | tuple[Tensor, Tensor]]:
    """What a model hands to this layer beside ``n`` tokens: angles as ``cos`` and ``sin``, and a mask.

    The mask is 0 where a query may attend, and a large negative number elsewhere: causal, and with
    ``layer.sliding_window`` the last keys only, among them the query's own.

    >>> layer = LlamaAttention(hidden_size=24, num_attention_heads=6, num_key_value_heads=2)
    >>> {name: len(what) for name, what in given(layer, 5).items()}
    {'position_embeddings': 2, 'attention_mask': 1}
    """
    _checked(layer)
    speed = rotary_frequencies(layer.rotary_dim, base=layer.rope_theta)
    angles = torch.arange(n)[:, None] * torch.cat((speed, speed))
    window = getattr(layer, "sliding_window", None)
    mask = causal_mask(n) if window is None else sliding_window_mask(n, window=window)
    return {
        "position_embeddings": (angles.cos()[None], angles.sin()[None]),
        "attention_mask": mask_to_additive(mask)[None, None],
    }


def code(thing: type | Callable) -> str:
    """The code of a function, or of a class and its methods, without annotations and descriptions.

    >>> print(code(rotate_half))
    def rotate_half(x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)
    """
    if not isinstance(thing, type | FunctionType):
        expect.fail(TypeError, "thing", "a class or a function", type(thing).__name__)
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node):
                node.body = node.body[1:]
            node.decorator_list = []
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
                if argument is not None:
                    argument.annotation = None
    return ast.unparse(tree)


def edited(thing: type | Callable, changes: dict[str, str], **names: Any) -> Any:
    """The same class or function with other lines, to try what they change.

    Args:
        thing: a class or a function.
        changes: texts of ``code(thing)``, and what replaces them.
        names: other values of names that the code uses.

    >>> edited(rotate_half, {"-x2": "x2"})(torch.arange(4))
    tensor([2, 3, 0, 1])
    """
    text = code(thing)
    for old, new in changes.items():
        if old not in text:
            expect.fail(ValueError, "changes", f"texts of the code of {thing.__name__}", repr(old))
        text = text.replace(old, new)
    space = vars(import_module(thing.__module__)) | names
    exec(text, space)
    return space[thing.__name__]


def original_code(name: str, folder: str | None = None) -> str:
    """The code of an attention class in the installed ``transformers``; without it, that of our short form.

    Args:
        name: of a class that ``published.census()`` lists, such as ``"LlamaAttention"``.
        folder: that of the census; ``None`` means the first that has a class of this name.
    """
    folder, file = _place(name, folder)
    try:
        found = getattr(import_module(f"transformers.models.{folder}.{file}"), name)
    except ImportError:
        if name not in CLASSES:
            return f"# transformers is not installed: pip install transformers shows the code of {name}."
        return f"# transformers is not installed; this is our short form.\n{code(CLASSES[name])}"
    return code(found)


def compared(layer: nn.Module, x: Tensor) -> float | None:
    """The largest difference from the original with the same weights; ``None`` without ``transformers``.

    Args:
        layer: one of the four of this module.
        x: ``(batch, n, hidden_size)``.
    """
    _checked(layer)
    name = type(layer).__name__
    folder, file = _place(name)
    try:
        file = import_module(f"transformers.models.{folder}.{file}")
        configuration = import_module(f"transformers.models.{folder}.configuration_{folder}")
    except ImportError:
        return None
    theirs = _original(layer, file, getattr(configuration, name.replace("Attention", "Config")))
    theirs.load_state_dict(layer.state_dict())
    with torch.no_grad():
        inputs = given(layer, x.shape[-2])
        return (theirs(x, **inputs)[0] - layer(x, **inputs)[0]).abs().max().item()


def _original(layer: nn.Module, file: ModuleType, config: type) -> nn.Module:
    """The class of the same name with the same sizes."""
    packed = isinstance(layer, GPTNeoXAttention)
    last = layer.dense if packed else layer.o_proj
    width = layer.head_size if packed else layer.head_dim
    heads = last.in_features // width
    sizes = {"hidden_size": last.out_features, "num_attention_heads": heads}
    rope = {"rope_type": "default", "rope_theta": layer.rope_theta}
    if packed:
        rope["partial_rotary_factor"] = layer.rotary_dim / width
    else:
        sizes |= {"num_key_value_heads": heads // layer.num_key_value_groups, "head_dim": width}
    if isinstance(layer, Gemma2Attention):
        sizes["query_pre_attn_scalar"] = round(layer.scaling**-2)
        sizes["attn_logit_softcapping"] = layer.attn_logit_softcapping
    made = config(**sizes, rope_parameters=rope, attn_implementation="eager")
    return getattr(file, type(layer).__name__)(made, layer_idx=0).eval()


def _place(name: str, folder: str | None = None) -> tuple[str, str]:
    from mha_course.chapters.published import census

    table = census()
    found = table[table["class"] == name]
    if not len(found):
        expect.fail(ValueError, "name", 'a class of published.census(), such as "LlamaAttention"', repr(name))
    if folder is not None and not len(found := found[found["folder"] == folder]):
        expect.fail(ValueError, "folder", f"one in which the census has {name}", repr(folder))
    return found["folder"].iloc[0], found["file"].iloc[0]


def _checked(layer: object) -> None:
    if type(layer).__name__ not in CLASSES:  # an edited one, too
        expect.fail(TypeError, "layer", f"one of {', '.join(CLASSES)}", type(layer).__name__)
