"""What a model keeps of a text, and what it reads of it for each new token: these need not be the same.

A model is a list of parts. A part says how many layers have it, how wide an entry is, after how many tokens
there is one, which of them stay, and which are read. The numbers of each model are those of the class
defaults in ``transformers`` 5.23, which can differ from those of a published checkpoint.

Source: ``Qwen3NextConfig``, ``KimiLinearConfig``, ``DeepseekV32Config`` and ``DeepseekV4Config``, and the
cache that their modules fill, in ``transformers`` 5.23.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mha_course.chapters.published import GIB, KIB, Published, aligned
from mha_lab import _expect as expect

MIB = 2**20


@dataclass(frozen=True)
class Part:
    """What some layers keep and read.

    Args:
        layers: how many layers have this part.
        entry: how many numbers an entry has: a key and a value, or a latent vector; 0 if there is none.
        every: after how many tokens there is a new entry.
        window: how many of the newest entries stay; ``None`` means all.
        index: how many more numbers an entry has that are read to choose entries, each time all of them.
        chosen: how many entries are read for a new token; ``None`` means all that stay.
        state: how many numbers do not depend on the length. All are read.
    """

    layers: int
    entry: int = 0
    every: int = 1
    window: int | None = None
    index: int = 0
    chosen: int | None = None
    state: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "every"):
            expect.whole_number(name, getattr(self, name))
        for name in ("entry", "index", "state"):
            expect.whole_number(name, getattr(self, name), at_least=0)
        for name in ("window", "chosen"):
            if getattr(self, name) is not None:
                expect.whole_number(name, getattr(self, name))

    def entries(self, n: int) -> int:
        """How many entries one layer keeps of ``n`` tokens: only full groups of ``every`` tokens have one."""
        return n // self.every if self.window is None else min(n // self.every, self.window)


def delta_state(
    num_heads: int, d_k: int, d_v: int, *, num_kv_heads: int | None = None, width: int = 4
) -> int:
    """The numbers of one layer with the delta rule: a matrix for each head, and the last tokens.

    ``num_heads · d_k · d_v``, and for the short convolution ``width - 1`` tokens of all queries, keys and
    values (``transformers`` keeps ``width``, one more than the next token needs). ``num_kv_heads`` is how
    many heads have queries and keys of their own; ``None`` means all.

    >>> delta_state(32, 128, 128, num_kv_heads=16) == 32 * 128 * 128 + 3 * (16 * 128 * 2 + 32 * 128)
    True
    """
    queries = (num_heads if num_kv_heads is None else num_kv_heads) * d_k
    return num_heads * d_k * d_v + (width - 1) * (2 * queries + num_heads * d_v)


PAST_SOFTMAX: Mapping[str, tuple[Part, ...]] = {
    # 48 layers, every fourth one with softmax attention: 2 KV heads, keys and values of 256
    "Qwen3-Next": (
        Part(12, entry=2 * (256 + 256)),
        Part(36, state=delta_state(32, 128, 128, num_kv_heads=16)),
    ),
    # 27 layers; 4, 8, 12, 16, 20 and 24, counted from 0, have a latent vector and a shared key
    "Kimi Linear": (Part(6, entry=512 + 64), Part(21, state=delta_state(32, 128, 128))),
    # 61 layers; an index key of 128 chooses 2048 tokens
    "DeepSeek-V3.2": (Part(61, entry=512 + 64, index=128, chosen=2048),),
    # 43 layers with a window of 128, one vector of 512 is key and value; 20 of them also keep a vector for
    # 4 tokens, and choose 512 of these; 23 keep one for 128 tokens, and read all
    "DeepSeek-V4": (
        Part(43, entry=512, window=128),
        Part(20, entry=512, every=4, index=128, chosen=512),
        Part(23, entry=512, every=128),
    ),
}
"""Four models of 2025 and 2026, by name. DeepSeek-V4's tokens of groups that are not full are left out."""


def parts_of(model: Published) -> tuple[Part, ...]:
    """The parts of a model of chapter 12.

    >>> from mha_course.chapters.published import MODELS
    >>> parts_of(MODELS["Mistral 7B v0.1"])
    (Part(layers=32, entry=2048, every=1, window=4096, index=0, chosen=None, state=0),)
    """
    if model.kv_rank is not None:
        width = model.kv_rank + model.d_rope
    else:
        width = model.num_kv_heads * (model.d_k + (model.d_k if model.d_v is None else model.d_v))
    full = model.num_layers - model.num_windowed
    parts = ((full, None), (model.num_windowed, model.window))
    return tuple(Part(layers, entry=width, window=window) for layers, window in parts if layers)


def numbers_kept(parts: Iterable[Part], n: int) -> int:
    """How many numbers are kept of a text of ``n`` tokens.

    The sum over parts of ``layers · (entries(n) · (entry + index) + state)``.

    >>> numbers_kept(PAST_SOFTMAX["DeepSeek-V3.2"], 1)  # 61 · (512 + 64 + 128)
    42944
    """
    expect.whole_number("n", n)
    return sum(part.layers * (part.entries(n) * (part.entry + part.index) + part.state) for part in parts)


def numbers_read(parts: Iterable[Part], n: int) -> int:
    """How many of these numbers are read to compute one more token.

    The sum over parts of ``layers · (min(entries(n), chosen) · entry + entries(n) · index + state)``: all
    index keys, and the entries that they choose. Each number counts once, as if heads that share it also
    shared the reading. The weights of the model are not counted; they are the same for every length.

    >>> parts = PAST_SOFTMAX["DeepSeek-V3.2"]
    >>> round(numbers_read(parts, 131_072) / numbers_kept(parts, 131_072), 2)
    0.19
    """
    expect.whole_number("n", n)
    total = 0
    for part in parts:
        entries = part.entries(n)
        read = entries if part.chosen is None else min(entries, part.chosen)
        total += part.layers * (read * part.entry + entries * part.index + part.state)
    return total


def kept_and_read_table(models: Mapping[str, Iterable[Part]], lengths: Sequence[int]) -> list[str]:
    """A line for each model, below one of headings; with 2 bytes for each number.

    KiB for each further token, once windows are full (entries that come after many tokens are shared among
    them); MiB that do not depend on the length, full windows among them; then for each length, GiB kept, and
    GiB read for one more token.

    >>> for line in kept_and_read_table({"Qwen3-Next": PAST_SOFTMAX["Qwen3-Next"]}, [131_072]):
    ...     print(line)
    model       KiB a token  fixed MiB  131072: kept  read
    Qwen3-Next         24.0       37.7          3.04  3.04
    """
    rows = [["model", "KiB a token", "fixed MiB"]]
    for n in lengths:
        rows[0] += [f"{n}: kept", "read"]
    for name, given in models.items():
        parts = tuple(given)
        growing = sum(p.layers * (p.entry + p.index) / p.every for p in parts if p.window is None)
        fixed = sum(p.layers * (p.state + (p.window or 0) * (p.entry + p.index)) for p in parts)
        row = [name, f"{2 * growing / KIB:.1f}", f"{2 * fixed / MIB:.1f}" if fixed else "–"]
        for n in lengths:
            row += [f"{2 * count(parts, n) / GIB:.2f}" for count in (numbers_kept, numbers_read)]
        rows.append(row)
    return aligned(rows)
