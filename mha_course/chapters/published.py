"""Published language models: how their attention is built, and what they keep for each token.

All of them keep the keys and values of earlier tokens, as ``MultiHeadAttention.extend`` does. What differs is
how many heads have keys and values of their own, how wide they are, in how many layers, and for how long.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mha_lab import _expect as expect

if TYPE_CHECKING:
    import pandas

LENGTHS = (8192, 131072)  # "8k" and "128k"
KIB, GIB = 2**10, 2**30


@dataclass(frozen=True)
class Published:
    """The attention layers of one language model. ``dataclasses.replace`` makes a changed copy.

    Args:
        name: the model.
        num_layers: how many layers have attention.
        d_model: the width of a token.
        num_heads: how many heads a layer has, that is, how many queries a token has.
        num_kv_heads: how many keys and values a token has; ``num_heads / num_kv_heads`` heads share one.
        d_k: the width of a query and of a key.
        d_v: the width of a value; ``None`` means ``d_k``.
        source: where the numbers were read.
        positions: ``"rotary"`` or ``"learned"``.
        base: the base of the rotary angles. (For long texts, DeepSeek-V3, Gemma 3 and GPT-OSS also stretch
            the angles, which the table leaves out.)
        window_base: the base in layers with a window; ``None`` means ``base``.
        d_rope: how many of the ``d_k`` numbers are rotated; ``None`` means all of them.
        max_length: how many learned positions there are; ``None`` means that nothing in the layer limits
            the length. (A model that was trained on shorter texts may still be bad at longer ones.)
        window: how many tokens a query sees, itself included; ``None`` means all earlier ones.
        full_every: in a model with a window, layers ``full_every``, ``2 full_every``, ... have none, if the
            first layer is layer 1; ``None`` means that all layers have the window.
        kv_rank: the width of the latent vector that is kept in place of keys and values.
        qk_norm: ``"head"`` if queries and keys are normalised in each head, ``"layer"`` if over all heads of
            the layer together, ``None`` if they are not.
        soft_cap: ``c``, if scores ``s`` are replaced by ``c tanh(s / c)``.
        sinks: whether each head has a learned score that takes weight and has no value.

    >>> MODELS["Llama 3 8B"].num_kv_heads, MODELS["Gemma 3 12B"].num_windowed
    (8, 40)
    """

    name: str
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    d_k: int
    _: KW_ONLY
    source: str
    d_v: int | None = None
    positions: str = "rotary"
    base: int | None = 10_000
    window_base: int | None = None
    d_rope: int | None = None
    max_length: int | None = None
    window: int | None = None
    full_every: int | None = None
    kv_rank: int | None = None
    qk_norm: str | None = None
    soft_cap: float | None = None
    sinks: bool = False

    def __post_init__(self) -> None:
        for name in ("num_layers", "d_model", "num_heads", "num_kv_heads", "d_k"):
            expect.whole_number(name, getattr(self, name))
        for name in ("d_v", "d_rope", "max_length", "window", "full_every", "kv_rank"):
            if getattr(self, name) is not None:
                expect.whole_number(name, getattr(self, name))
        expect.divides("num_kv_heads", self.num_kv_heads, "num_heads", self.num_heads)
        if self.kv_rank is not None and self.d_rope is None:
            hint = "A rotated key is kept beside the latent vector."
            expect.fail(ValueError, "d_rope", "the width of the rotated part", None, hint)

    @property
    def num_windowed(self) -> int:
        """How many layers have the window."""
        if self.window is None:
            return 0
        return self.num_layers - (self.num_layers // self.full_every if self.full_every else 0)

    @property
    def kind(self) -> str:
        """What the model does to keep less, in words."""
        if self.kv_rank is not None:
            return "a latent vector"
        if self.window is not None:
            return "fewer keys and values, and windows"
        if self.num_kv_heads < self.num_heads:
            return "fewer keys and values"
        return "keys and values for every head"


_HF = "transformers 5.23.0, {}, defaults".format
_LITGPT = 'LitGPT, litgpt/config.py, "{}"'.format
_GEMMA = "google/gemma_pytorch, gemma/config.py, {}".format

MODELS = {
    model.name: model
    for model in (
        # keys and values for every head
        Published(
            "GPT-2", 12, 768, 12, 12, 64, positions="learned", base=None, max_length=1024,
            source=_HF("GPT2Config"),
        ),
        Published("Llama 2 7B", 32, 4096, 32, 32, 128, source=_HF("LlamaConfig")),
        Published("Phi-2", 32, 2560, 32, 32, 80, d_rope=32, source=_LITGPT("phi-2")),
        Published(
            "OLMo 2 7B", 32, 4096, 32, 32, 128, base=500_000, qk_norm="layer",
            source="allenai/OLMo, configs/official-1124/OLMo2-7B-stage1.yaml",
        ),
        # fewer keys and values than heads
        Published("Falcon 7B", 32, 4544, 71, 1, 64, source=_HF("FalconConfig")),
        Published("Llama 3 8B", 32, 4096, 32, 8, 128, base=500_000, source=_LITGPT("Llama-3-8B{}")),
        Published(
            "Qwen3 8B", 36, 4096, 32, 8, 128, base=1_000_000, qk_norm="head", source=_LITGPT("Qwen3-8B{}"),
        ),
        # windows, too
        Published("Mistral 7B v0.1", 32, 4096, 32, 8, 128, window=4096, source=_HF("MistralConfig")),
        Published(
            "Gemma 2 9B", 42, 3584, 16, 8, 256, window=4096, full_every=2, soft_cap=50.0,
            source=_GEMMA("get_config_for_9b"),
        ),
        Published(
            "Gemma 3 12B", 48, 3840, 16, 8, 256, base=1_000_000, window_base=10_000, window=1024,
            full_every=6, qk_norm="head", source=_GEMMA("get_config_for_12b"),
        ),
        Published(
            "GPT-OSS 20B", 24, 2880, 64, 8, 64, base=150_000, window=128, full_every=2, sinks=True,
            source=_HF("GptOssConfig") + "; 24 layers: OpenAI 2025, gpt-oss model card, section 2",
        ),
        # a latent vector for all heads
        Published(
            "DeepSeek-V3", 61, 7168, 128, 128, 192, d_v=128, d_rope=64, kv_rank=512,
            source="deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json; " + _HF("DeepseekV3Config"),
        ),
    )
}  # fmt: skip
"""Twelve models by name, those that do the same to keep less side by side."""

CENSUS = Path(__file__).with_name("census.csv")
CENSUS_COLUMNS = (
    "version", "folder", "file", "class", "kind", "year", "result", "difference", "largest", "reason",
    "compared", "layers", "heads", "kv_heads", "d_k", "d_v", "packed", "linear_bias", "latent", "positions",
    "all_positions", "layout", "share", "base", "scaling",
    "norm", "scale", "temperature", "cap", "masks", "windows", "sinks", "gate", "bias", "cross", "output",
    "default_heads", "default_kv_heads", "default_d_k", "default_base", "default_window_base",
    "default_window", "default_layers",
)  # fmt: skip


def census() -> "pandas.DataFrame":
    """The attention modules of ``transformers``: which of them our layer computes, and what they have.

    ``python -m bench census`` makes the table: it runs a small model of each family with random weights,
    rebuilds each attention module, and compares both on new inputs. Sizes, windows and caps are small, so
    that they are felt; all else is the default of the configuration's class, which can differ from that of
    a published model.

    Returns:
        A row for each class that a file defines. ``result`` is ``"equal"`` if the largest ``difference`` of
        the two outputs is at most 1e-5 in float32 (``largest`` is the largest number of the output),
        ``"differs"``, or ``"not covered"`` with a ``reason``. ``compared`` is ``"output"``, or
        ``"projection"`` if the module adds something after its last linear map, or ``"alone"`` if no small
        model called the module, so that it got inputs made for it. ``year`` is that of the file's licence.
        ``positions`` are ``"rotary"``, or ``"rotary, given angles"`` if the tokens are not at 0, 1, 2, ...;
        ``share`` is the part of a head that is turned, ``scaling`` the ``rope_type``. Where layers of a class
        differ, these are of one with positions, and ``all_positions``, ``masks`` and ``windows`` name all.

        A text decoder has the sizes of its configuration's class, too, which no model was built for:
        ``default_heads``, ``default_kv_heads``, ``default_d_k``, ``default_base``, ``default_window`` and
        ``default_layers``. Where layers differ, they are of those that see all earlier tokens, and
        ``default_window_base`` is the base of the others. ``python -m bench defaults`` writes only these.

    >>> table = census()
    >>> table[table["class"] == "LlamaAttention"]["result"].item()
    'equal'
    """
    import pandas

    return pandas.read_csv(CENSUS)


def cache_numbers(model: Published, n: int) -> int:
    """How many numbers a model keeps of one text of ``n`` tokens.

    ``full · n · width + windowed · min(n, window) · width``, where ``full`` and ``windowed`` are how many
    layers there are of each sort, and ``width`` is what one layer keeps of one token:

    * ``num_kv_heads · (d_k + d_v)``, a key and a value for each head that has its own;
    * ``kv_rank + d_rope`` in a model with latent vectors: one vector from which keys and values of all heads
      are computed again, and one rotated key that all heads share.

    Args:
        model: one of ``MODELS``, or your own.
        n: number of tokens. More than ``max_length`` is counted, too, as if there were more positions.

    Returns:
        A whole number. A layer with a window keeps ``window`` tokens, in a buffer in which the newest one
        replaces the oldest one. Right after a step, ``transformers`` keeps one less: it drops the oldest
        token before the next one comes.

    Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 3 (shared keys
    and values); Jiang et al. 2023, "Mistral 7B", section 2, "Rolling Buffer Cache"; DeepSeek-AI 2024,
    "DeepSeek-V2", section 2.1 (latent vectors).

    >>> cache_numbers(MODELS["Llama 3 8B"], 1)  # 32 layers · 8 heads · (128 + 128)
    65536
    >>> cache_numbers(MODELS["Mistral 7B v0.1"], 4096) == cache_numbers(MODELS["Mistral 7B v0.1"], 8192)
    True
    """
    _checked(model)
    expect.whole_number("n", n)
    if model.kv_rank is not None:
        width = model.kv_rank + model.d_rope
    else:
        width = model.num_kv_heads * (model.d_k + (model.d_k if model.d_v is None else model.d_v))
    tokens = n if model.window is None else min(n, model.window)
    return ((model.num_layers - model.num_windowed) * n + model.num_windowed * tokens) * width


def cache_bytes(model: Published, n: int, bytes_per_number: int = 2) -> int:
    """How many bytes that are: ``bytes_per_number · cache_numbers(model, n)``.

    Args:
        model: one of ``MODELS``, or your own.
        n: number of tokens.
        bytes_per_number: 2 for ``torch.bfloat16`` and ``torch.float16``, 4 for ``torch.float32``.

    >>> cache_bytes(MODELS["Llama 3 8B"], 8192) / 2**30  # GiB
    1.0
    """
    expect.whole_number("bytes_per_number", bytes_per_number)
    return bytes_per_number * cache_numbers(model, n)


def cache_curves(models: Iterable[Published], lengths: Sequence[int]) -> dict[str, list[int]]:
    """The bytes at each length, by name, for ``pictures.cache_lines``; 2 bytes for each number.

    The curve of a model whose positions end earlier is shorter: GPT-2 has 1024 positions. A model that has no
    position for any of the lengths is left out.

    >>> curves = cache_curves(MODELS.values(), [1024, 2048])
    >>> curves["Falcon 7B"], curves["GPT-2"]
    ([8388608, 16777216], [37748736])
    """
    curves = {
        model.name: [
            cache_bytes(model, n) for n in lengths if model.max_length is None or n <= model.max_length
        ]
        for model in map(_checked, models)
    }
    return {name: curve for name, curve in curves.items() if curve}


def layer_table(models: Iterable[Published], columns: Sequence[str] | None = None) -> list[str]:
    """How the layers are built: a line of text for each model, below a line of headings.

    ``columns`` are the headings to show; ``None`` means all of them. The name of the model is always shown.

    "1024 in 40" is a window of 1024 tokens in 40 of the layers; "32 of 80" says how many numbers of a head
    are rotated; a second base is that of layers with a window.

    >>> layer_table([MODELS["Phi-2"]])[1].split()
    ['Phi-2', '32', '2560', '32', '32', '80', '–', 'rotary,', '32', 'of', '80', '10,000', '–', '–', '–']
    """
    heads = (
        "model", "layers", "d_model", "heads", "KV heads", "d_k", "window", "positions", "base", "q, k norm",
        "cap", "sinks",
    )  # fmt: skip
    for column in columns or ():
        if column not in heads:
            expect.fail(ValueError, "columns", f"headings of {heads}", repr(column))
    shown = [0, *map(heads.index, heads[1:] if columns is None else columns)]
    return aligned([[row[i] for i in shown] for row in (heads, *map(_layer_row, map(_checked, models)))])


def source_table(models: Iterable[Published], width: int = 88) -> list[str]:
    """Where the numbers of each model were read, without versions: lines of at most ``width`` letters.

    >>> source_table([MODELS["GPT-2"]])
    ['GPT-2            transformers, GPT2Config, defaults']
    """
    indent = 17
    return [
        line
        for model in map(_checked, models)
        for line in textwrap.wrap(
            model.name.ljust(indent) + re.sub(r" \d+(\.\d+)+", "", model.source),
            width,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )
    ]


def cache_table(models: Iterable[Published], lengths: Sequence[int] = LENGTHS) -> list[str]:
    """What the models keep, with 2 bytes for each number: a line for each model, below one of headings.

    The first number is for a text of one token, in KiB. Then, for each length, all bytes in GiB, and the
    bytes for each token in KiB, which windows make fewer. A dash means that the model has no positions for
    this length.

    >>> for line in cache_table([MODELS["GPT-2"], MODELS["Gemma 3 12B"]], [8192]):
    ...     print(line)
    model        KiB for 1 token  GiB at 8192  KiB a token at 8192
    GPT-2                   36.0            –                    –
    Gemma 3 12B            384.0         0.81                104.0
    """
    heads = [f"{text} {n}" for n in lengths for text in ("GiB at", "KiB a token at")]
    rows = [_cache_row(model, lengths) for model in map(_checked, models)]
    return aligned([("model", "KiB for 1 token", *heads), *rows])


def _layer_row(model: Published) -> tuple[str, ...]:
    heads = str(model.num_kv_heads) if model.kv_rank is None else f"latent {model.kv_rank}"
    numbers = (str(size) for size in (model.num_layers, model.d_model, model.num_heads))
    window = "–" if model.window is None else f"{model.window} in {model.num_windowed}"
    rotated = "" if model.d_rope is None else f", {model.d_rope} of {model.d_k}"
    base = " / ".join(f"{base:,}" for base in (model.base, model.window_base) if base is not None)
    cap = "–" if model.soft_cap is None else f"{model.soft_cap:g}"
    features = (
        model.positions + rotated,
        base or "–",
        model.qk_norm or "–",
        cap,
        "yes" if model.sinks else "–",
    )
    return (model.name, *numbers, heads, str(model.d_k), window, *features)


def _cache_row(model: Published, lengths: Sequence[int]) -> list[str]:
    row = [model.name, f"{cache_bytes(model, 1) / KIB:.1f}"]
    for n in lengths:
        kept = cache_bytes(model, n)
        possible = model.max_length is None or n <= model.max_length
        row += [f"{kept / GIB:.2f}", f"{kept / n / KIB:.1f}"] if possible else ["–", "–"]
    return row


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width; the first is aligned to the left, and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _checked(model: object) -> Published:
    if not isinstance(model, Published):
        hint = f"Did you mean MODELS[{model!r}]?" if isinstance(model, str) else ""
        expect.fail(TypeError, "model", "a Published", type(model).__name__, hint)
    return model
