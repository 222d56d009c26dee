"""Small models whose layers have a cache, a state, or both kinds, trained to recall pairs.

A text is pairs of a name and a content, and then each name once more, in another order. After each of
these, the model has to say the content. A letter stands for each layer: ``F`` for full attention, with a
softmax and a cache, ``D`` for the gated delta rule, with a state. Layers of both kinds have one head, a short
convolution in front of queries, keys and values, and no positions.

``python -m mha_course.chapters.hybrid`` trains the models of ``results`` again, and writes their table.

Source: the order of layers is that of Qwen3-Next (``layer_types`` in ``configuration_qwen3_next.py``,
``transformers`` 5.23): three with a state, then one with softmax attention. The task is the multi-query
associative recall of Arora et al. 2023, "Zoology" (arXiv 2312.04927), with all questions at the end.
"""

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Generator, Tensor, nn

from mha_course.chapters import delta, kept
from mha_course.chapters.recall import sample_problems
from mha_lab import _expect as expect
from mha_lab import causal_mask

NUM_NAMES = NUM_CONTENTS = 128
D_MODEL, WIDTH = 64, 4  # of a token, and of the short convolution
TRAINED, TRIED = (4, 8, 16, 32), (4, 8, 16, 32, 64, 128)  # pairs of a text
STEPS, SEEDS = 600, range(5)
FILE = Path(__file__).with_suffix(".csv")
# Layers, d_k and steps of each model in the table. Three are compared; the others change one thing.
COMPARED = (("FFFF", 16, STEPS), ("DDDD", 16, STEPS), ("DDDF", 16, STEPS))
CHANGED = (("FDDD", 16, STEPS), ("F", 16, STEPS), ("DDDD", 32, STEPS), ("DDDD", 16, 3 * STEPS))
COLUMNS = ("layers", "d_k", "steps", "seed", "pairs", "right")

Memory = tuple[Float[Tensor, "batch _rows _columns"], ...]  # the convolution, then cache or state
Row = tuple[str, int, int, int, int, float]  # of COLUMNS


def sample(
    count: int, pairs: int, *, generator: Generator
) -> tuple[Int64[Tensor, "count n"], Int64[Tensor, "count pairs"]]:
    """Random texts of ``3 · pairs`` tokens, and the contents that the last ``pairs`` of them ask for.

    In a text, all names differ, and all contents differ. The token of content ``c`` is ``NUM_NAMES + c``.

    >>> tokens, answers = sample(1, 2, generator=Generator().manual_seed(0))
    >>> name, content, other = tokens[0, :3].tolist()
    >>> (answers + NUM_NAMES)[tokens[:, 4:] == name].item() == content
    True
    """
    texts = sample_problems(
        count, pairs, generator=generator, n=pairs, num_names=NUM_NAMES, num_contents=NUM_CONTENTS
    )
    written = torch.stack([texts.names, texts.contents + NUM_NAMES], dim=-1).flatten(1)
    return torch.cat([written, texts.asked], dim=1), texts.answers


class Layer(nn.Module):
    """One head with a cache (``kind = "F"``) or with a state (``"D"``).

    Query, key and value, ``(batch, n, d_k)`` each, are projections of ``x`` behind a short convolution. Then
    ``F`` is ``softmax(q k^T / sqrt(d_k)) v`` with a causal mask. ``D`` is ``delta.delta_rule_chunked``, with
    queries and keys of length 1, and with a rate and a decay that are computed from ``x``.

    Published layers with the delta rule also have ``silu`` behind the convolution, and a norm and a gate
    behind the head.

    >>> x = torch.randn(2, 7, 6)
    >>> output, memory = Layer("D", 6, d_k=5)(x)
    >>> output.shape, [part.shape for part in memory]
    (torch.Size([2, 7, 6]), [torch.Size([2, 3, 15]), torch.Size([2, 5, 5])])
    """

    def __init__(self, kind: str, d_model: int, d_k: int) -> None:
        super().__init__()
        self.kind, size = kind, 3 * d_k
        self.project = nn.Linear(d_model, size, bias=False)
        self.mix = nn.Parameter(0.3 * torch.randn(size, WIDTH) + F.one_hot(torch.tensor(WIDTH - 1)))
        self.output = nn.Linear(d_k, d_model, bias=False)
        if kind == "D":
            self.gates = nn.Linear(d_model, 2)
            nn.init.zeros_(self.gates.weight)
            self.gates.bias.data = torch.tensor([0.0, 5.0])  # a rate of 0.5, and a decay of 0.993

    def forward(
        self, x: Float[Tensor, "batch n d_model"], memory: Memory | None = None
    ) -> tuple[Float[Tensor, "batch n d_model"], Memory]:
        """The output, and what the next call needs: the last tokens of the convolution, cache or state."""
        earlier, *before = memory or (None,)
        mixed, earlier = delta.short_convolution(self.project(x), self.mix, earlier)
        q, k, v = mixed.chunk(3, dim=-1)
        if self.kind == "D":
            rate, decay = self.gates(x).sigmoid().split(1, dim=-1)
            read, state = delta.delta_rule_chunked(
                delta.unit(q), delta.unit(k), v, rate, decay, *before, chunk=16
            )
            return self.output(read), (earlier, state)
        if before:
            k, v = (torch.cat(both, dim=-2) for both in zip(before, (k, v), strict=True))
        read = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_mask(q.shape[-2], k.shape[-2]))
        return self.output(read), (earlier, k, v)


class Model(nn.Module):
    """Embedding, layers, each followed by a network for each token alone, and a readout of contents.

    ``x = x + layer(norm(x))``, then ``x = x + network(x)``, whose first part is a norm.

    Args:
        layers: a letter for each layer, ``F`` or ``D``, from the first to the last.
        d_k: the width of queries, keys and values.

    >>> logits, memories = Model("DDDF")(torch.tensor([[3, 140, 3]]))
    >>> logits.shape, len(memories)
    (torch.Size([1, 3, 128]), 4)
    """

    def __init__(self, layers: str, d_k: int = 16) -> None:
        super().__init__()
        _kinds(layers)
        expect.whole_number("d_k", d_k)
        self.embedding = nn.Embedding(NUM_NAMES + NUM_CONTENTS, D_MODEL)
        self.layers = nn.ModuleList(Layer(kind, D_MODEL, d_k) for kind in layers)
        self.norms = nn.ModuleList(nn.LayerNorm(D_MODEL) for _ in layers)
        self.networks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(D_MODEL),
                nn.Linear(D_MODEL, 2 * D_MODEL),
                nn.GELU(),
                nn.Linear(2 * D_MODEL, D_MODEL),
            )
            for _ in layers
        )
        self.readout = nn.Sequential(nn.LayerNorm(D_MODEL), nn.Linear(D_MODEL, NUM_CONTENTS))

    def forward(
        self, tokens: Int64[Tensor, "batch n"], memories: Sequence[Memory] | None = None
    ) -> tuple[Float[Tensor, "batch n contents"], list[Memory]]:
        """A score for each content after each token, and what each layer keeps for the next call."""
        x, after = self.embedding(tokens), []
        memories = memories or [None] * len(self.layers)
        for layer, norm, network, memory in zip(
            self.layers, self.norms, self.networks, memories, strict=True
        ):
            output, memory = layer(norm(x), memory)
            x = x + output
            x = x + network(x)
            after.append(memory)
        return self.readout(x), after


def parts(layers: str, d_k: int = 16) -> tuple[kept.Part, ...]:
    """What such a model keeps, for ``kept.numbers_kept``.

    >>> kept.numbers_kept(parts("DDDF"), 1000)  # 1000 keys and values, 3 matrices, 4 convolutions
    33344
    """
    _kinds(layers)
    convolution = (WIDTH - 1) * 3 * d_k
    made = {
        "F": kept.Part(max(1, layers.count("F")), entry=2 * d_k, state=convolution),
        "D": kept.Part(max(1, layers.count("D")), state=kept.delta_state(1, d_k, d_k, width=WIDTH)),
    }
    return tuple(made[kind] for kind in sorted(set(layers)))


def train(layers: str, d_k: int = 16, steps: int = STEPS, *, seed: int = 0) -> Model:
    """A model trained on fresh texts; the same one for the same seed and one thread.

    Each step has 32 texts, all with 4, 8, 16 or 32 pairs. The loss is the mean of ``-log p(content)``. The
    learning rate of AdamW rises to 0.006, then falls to 0.

    >>> sum(p.numel() for p in train("DDDF", steps=1).parameters())
    109702
    """
    expect.whole_number("steps", steps)
    generator = Generator().manual_seed(expect.whole_number("seed", seed, at_least=0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(layers, d_k)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.006, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.006, total_steps=steps + 1, pct_start=0.1
    )
    for _ in range(steps):
        pairs = TRAINED[int(torch.randint(len(TRAINED), (), generator=generator))]
        tokens, answers = sample(32, pairs, generator=generator)
        logits, _ = model(tokens)
        loss = F.cross_entropy(logits[:, -pairs:].flatten(0, 1), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


@torch.no_grad()
def right(model: Model, pairs: int, count: int = 100) -> float:
    """The share of right answers in ``count`` texts of ``pairs`` pairs, which no training used.

    >>> right(Model("DDDF"), 4) < 0.1
    True
    """
    tokens, answers = sample(count, pairs, generator=Generator().manual_seed(10**6))
    return (model(tokens)[0][:, -pairs:].argmax(dim=-1) == answers).float().mean().item()


def results() -> dict[tuple[str, int, int], dict[int, list[float]]]:
    """The stored shares of right answers, one for each seed: by layers, ``d_k`` and steps, then by pairs.

    >>> list(results()["DDDF", 16, STEPS])
    [4, 8, 16, 32, 64, 128]
    """
    found = {model: {pairs: [] for pairs in TRIED} for model in COMPARED + CHANGED}
    with FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            model = row["layers"], int(row["d_k"]), int(row["steps"])
            found[model][int(row["pairs"])].append(float(row["right"]))
    return found


def write(rows: Iterable[Row]) -> None:
    """The table of ``results``."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row[:-1], f"{row[-1]:.4f}") for row in rows)


def _tried(asked: tuple[str, int, int, int]) -> list[Row]:
    """The rows of one training."""
    torch.set_num_threads(1)
    *model, seed = asked
    trained = train(*model, seed=seed)
    return [(*asked, pairs, right(trained, pairs)) for pairs in TRIED]


def _all() -> Iterator[Row]:
    """The rows of all trainings, as many at once as there are processors."""
    asked = [(*model, seed) for model in COMPARED + CHANGED for seed in SEEDS]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for rows in pool.map(_tried, asked):
            print(*rows[0][:4], *(f"{row[-1]:.2f}" for row in rows), flush=True)
            yield from rows


def _kinds(layers: str) -> None:
    if not isinstance(layers, str) or not layers or set(layers) - {"F", "D"}:
        expect.fail(ValueError, "layers", "letters F and D, such as 'DDDF'", repr(layers))


if __name__ == "__main__":
    write(list(_all()))
