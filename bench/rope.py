"""Rotary positions on texts longer than in training, without fine-tuning: plain, interpolated, and YaRN."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mha_course.chapters import prose, story_model
from mha_course.chapters.language_model import Decoder
from mha_lab import MultiHeadAttention
from mha_lab.positions import Rotary, rotary_frequencies, yarn_attention_factor, yarn_frequencies

TRAINED, LENGTHS, SEEDS, STEPS = 32, (32, 64, 128), range(5), 400
LONGEST, HELD_OUT, FACTOR, WIDTH, HEADS = max(LENGTHS), 400, 4, 16, 4
YARN = yarn_frequencies(WIDTH, FACTOR, TRAINED)
RULES = {
    "plain": Rotary(),
    "interpolated": Rotary(frequencies=rotary_frequencies(WIDTH, factor=FACTOR)),
    "NTK-aware": Rotary(base=10000 * FACTOR ** (WIDTH / (WIDTH - 2))),
    "YaRN": Rotary(frequencies=YARN, attention_factor=yarn_attention_factor(FACTOR)),
    "YaRN, unscaled": Rotary(frequencies=YARN),
}


def stories() -> Tensor:
    """Stories of the grammar, a token for each word."""
    tokens, entropies = story_model.sample(3000, length=LONGEST)
    floor = "  ".join(f"{n}: {entropies[:, 1:n].mean():.3f}" for n in LENGTHS)
    print(f"stories: the grammar leaves a loss of  {floor}")
    return tokens


def english() -> Tensor:
    """The sentences of ``prose.txt``, a token for each character, in an order that no seed changes."""
    tokens = prose.encode(prose.TEXT)
    rows = tokens[: len(tokens) // LONGEST * LONGEST].view(-1, LONGEST)
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]


def train(texts: Tensor, seed: int) -> Decoder:
    """A decoder of two layers with rotary positions only, trained on pieces of ``TRAINED`` tokens."""
    pieces = texts.view(-1, TRAINED)
    torch.manual_seed(seed)
    model = Decoder(int(texts.max()) + 1, d_model=WIDTH * HEADS, num_heads=HEADS, max_length=LONGEST)
    nn.init.zeros_(model.position_embedding.weight).requires_grad_(False)
    for block in model.blocks:
        block.attention = MultiHeadAttention(WIDTH * HEADS, HEADS, transform=RULES["plain"])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.005)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.005, total_steps=STEPS + 1, pct_start=0.1)
    for _ in range(STEPS):
        batch = pieces[torch.randint(len(pieces), (32,))]
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
        schedule.step()
    return model


def loss(model: Decoder, texts: Tensor) -> Tensor:
    """The mean over all tokens but the first."""
    return cross_entropy(model(texts[:, :-1])[0].flatten(0, 1), texts[:, 1:].flatten())


@torch.no_grad()
def under(model: Decoder, rule: Rotary, texts: Tensor) -> float:
    """The loss with another rule in every layer."""
    for block in model.blocks:
        block.attention.transform = rule
    return loss(model, texts).item()


def report() -> None:
    """Two lines for each text and rule: means over the seeds with the range, and what each adds to plain."""
    print(f"held-out loss in nats after training on {TRAINED} tokens, mean of {len(SEEDS)} seeds (range)")
    for make in (stories, english):
        texts = make()
        models = [train(texts[HELD_OUT:], seed) for seed in SEEDS]
        plain: dict[int, list[float]] = {}
        for name, rule in RULES.items():
            print(f"{make.__name__:8}  {name:14}", end="")
            above = ""
            for n in LENGTHS:
                found = [under(model, rule, texts[:HELD_OUT, :n]) for model in models]
                mean = sum(found) / len(found)
                print(f"  {n:3}: {mean:.3f} ({min(found):.3f} to {max(found):.3f})", end="", flush=True)
                pairs = zip(found, plain.setdefault(n, found), strict=True)
                above += f"  {n:3}: " + " ".join(f"{one - other:+.3f}" for one, other in pairs)
            print(f"\n{'more than plain, seed by seed':>29}{above}" if name != "plain" else "")
