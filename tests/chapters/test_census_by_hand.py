"""Ten families of the census, drawn at random, rebuilt from their modeling files by a reader of these files.

Nothing here uses ``rebuild``: each layer's options were read off its class and its configuration.
"""

import math
from importlib import import_module

import pytest
import torch
from torch import nn

from mha_course.chapters import published
from mha_lab import MultiHeadAttention, causal_mask
from mha_lab.positions import Rotary, rotary_frequencies
from mha_lab.scores import QueryKeyNorm, TransformSequence

pytest.importorskip("transformers")

BATCH, N, WIDTH, HEADS, D_K = 2, 11, 24, 4, 6
SIZES = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 2}
HALVES = {"positions": "rotary", "layout": "halves", "share": 1.0}
PLAIN = {"positions": "", "norm": "", "scale": "1/sqrt(d_k)", "linear_bias": True}


def of(folder, name):
    """Something of a family's modeling file."""
    return getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), name)


def made(kind, *args, **options):
    """A layer with random numbers in all its weights."""
    torch.manual_seed(0)
    layer = kind(*args, **options).eval()
    if hasattr(layer, "config"):
        layer.config._attn_implementation = "eager"
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 2 / parameter.shape[-1] ** 0.5)
    return layer


def copied(
    theirs, names="q_proj k_proj v_proj o_proj", kv_heads=HEADS, d_k=D_K, times=(1, 1), width=WIDTH, **options
):
    """Our layer with their weights; those of queries and keys are multiplied by ``times``."""
    q, k, v, o = (getattr(theirs, name) for name in names.split())
    options |= {"d_k": d_k, "num_kv_heads": kv_heads, "bias": q.bias is not None}
    ours = MultiHeadAttention(q.in_features, HEADS, **options).eval()
    parts = zip(
        (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj), (q, k, v, o), (*times, 1, 1), strict=True
    )
    for mine, their, factor in parts:
        mine.weight.data = their.weight * factor
        if mine.bias is not None:
            mine.bias.data = their.bias * factor
    return ours


def states():
    return torch.randn(BATCH, N, WIDTH)


def causal():
    """As ``transformers`` hands it to a layer: large negative numbers."""
    return torch.zeros(1, 1, N, N).masked_fill(~causal_mask(N), torch.finfo(torch.float32).min)


def compare(theirs, ours, *, rotary=None, **options):
    """Their output and ours under a causal mask."""
    x = torch.randn(BATCH, N, ours.q_proj.in_features)
    if rotary is not None:
        options["position_embeddings"] = rotary(x, torch.arange(N)[None])
    return theirs(x, attention_mask=causal(), **options)[0], ours(x, mask=causal_mask(N))[0]


def modernbert_decoder():
    config = of("modernbert_decoder", "ModernBertDecoderConfig")(
        **SIZES, layer_types=["full_attention", "sliding_attention"]
    )
    theirs = made(of("modernbert_decoder", "ModernBertDecoderAttention"), config, 0)
    turn = of("modernbert_decoder", "ModernBertDecoderRotaryEmbedding")(config)
    ours = copied(theirs, "q_proj k_proj v_proj Wo", transform=Rotary(base=160_000, layout="halves"))
    return compare(theirs, ours, rotary=lambda x, at: turn(x, at, "full_attention"))


def granite4_vision():
    config = of("granite4_vision", "Granite4VisionTextConfig")(**SIZES, num_key_value_heads=2)
    theirs = made(of("granite4_vision", "Granite4VisionTextAttention"), config, 0)
    turn = of("granite4_vision", "Granite4VisionTextRotaryEmbedding")(config)
    assert config.attention_multiplier == 1  # scores are not divided
    ours = copied(theirs, kv_heads=2, times=(math.sqrt(D_K), 1), transform=Rotary(layout="halves"))
    return compare(theirs, ours, rotary=turn)


def falcon_h1():
    config = of("falcon_h1", "FalconH1Config")(**SIZES, num_key_value_heads=2, head_dim=8, key_multiplier=0.7)
    theirs = made(of("falcon_h1", "FalconH1Attention"), config, 0)
    turn = of("falcon_h1", "FalconH1RotaryEmbedding")(config)
    base = config.rope_parameters["rope_theta"]
    ours = copied(theirs, kv_heads=2, d_k=8, times=(1, 0.7), transform=Rotary(base=base, layout="halves"))
    return compare(theirs, ours, rotary=turn)


def moonshine():
    """0.9 of 32 numbers turn, in whole pairs: 14, with the angles of a width of 28."""
    config = of("moonshine", "MoonshineConfig")(hidden_size=32 * HEADS)
    theirs = made(of("moonshine", "MoonshineAttention"), config, 0, True, HEADS, HEADS)
    turn = of("moonshine", "MoonshineRotaryEmbedding")(config)
    frequencies = rotary_frequencies(28, base=10_000)
    ours = copied(theirs, d_k=32, transform=Rotary(frequencies=frequencies, layout="pairs"))
    return compare(theirs, ours, rotary=turn)


def speech_to_text():
    config = of("speech_to_text", "Speech2TextConfig")(d_model=WIDTH)
    theirs = made(of("speech_to_text", "Speech2TextAttention"), WIDTH, HEADS, config=config)
    return compare(theirs, copied(theirs, "q_proj k_proj v_proj out_proj"))


def jamba():
    config = of("jamba", "JambaConfig")(**SIZES, num_key_value_heads=2)
    theirs = made(of("jamba", "JambaAttention"), config, 0)
    return compare(theirs, copied(theirs, kv_heads=2))


def mask2former():
    """It gets the sequence first. Positions are added to what queries and keys are made of, not to values."""
    theirs = made(of("mask2former", "Mask2FormerAttention"), WIDTH, HEADS)
    ours = copied(theirs, "q_proj k_proj v_proj out_proj")
    x, at = states(), states()
    found = theirs(x.transpose(0, 1), position_embeddings=at.transpose(0, 1))[0].transpose(0, 1)
    return found, ours(x + at, x + at, x)[0]


def sam3_tracker():
    """Projections to half the width; its tensors have one axis more, for points."""
    config = of("sam3_tracker", "Sam3TrackerMaskDecoderConfig")(hidden_size=WIDTH, num_attention_heads=HEADS)
    theirs = made(of("sam3_tracker", "Sam3TrackerAttention"), config, downsample_rate=2)
    query, key, value = (torch.randn(BATCH, 1, n, WIDTH) for n in (5, 7, 7))
    ours = copied(theirs, d_k=WIDTH // 2 // HEADS)
    return theirs(query, key, value)[0][:, 0], ours(query[:, 0], key[:, 0], value[:, 0])[0]


def instructblip():
    """One matrix: first all queries, then all keys, then all values."""
    config = of("instructblip", "InstructBlipVisionConfig")(**SIZES)
    theirs, x = made(of("instructblip", "InstructBlipAttention"), config), states()
    weights, biases = theirs.qkv.weight.chunk(3), theirs.qkv.bias.chunk(3)
    for name, weight, bias in zip(("q", "k", "v"), weights, biases, strict=True):
        part = nn.Linear(WIDTH, WIDTH)
        part.weight.data, part.bias.data = weight.clone(), bias.clone()
        setattr(theirs, name, part)
    return theirs(x)[0], copied(theirs, "q k v projection")(x)[0]


def instructblip_qformer():
    """No output projection: ours is the identity."""
    config = of("instructblip", "InstructBlipQFormerConfig")(**SIZES)
    theirs = made(of("instructblip", "InstructBlipQFormerMultiHeadAttention"), config)
    theirs.same = nn.Linear(WIDTH, WIDTH)
    nn.init.eye_(theirs.same.weight)
    nn.init.zeros_(theirs.same.bias)
    return compare(theirs, copied(theirs, "query key value same"))


def molmo2():
    config = of("molmo2", "Molmo2TextConfig")(**SIZES, num_key_value_heads=2, head_dim=8)
    theirs = made(of("molmo2", "Molmo2Attention"), config, 0)
    turn = of("molmo2", "Molmo2RotaryEmbedding")(config)
    norm = QueryKeyNorm(8, eps=config.rms_norm_eps)
    norm.query_norm.weight.data = theirs.q_norm.weight.clone()
    norm.key_norm.weight.data = theirs.k_norm.weight.clone()
    base = config.rope_parameters["rope_theta"]
    both = TransformSequence(norm, Rotary(base=base, layout="halves"))
    return compare(theirs, copied(theirs, kv_heads=2, d_k=8, transform=both), rotary=turn)


def molmo2_vision():
    config = of("molmo2", "Molmo2VisionConfig")(**SIZES, head_dim=8, num_key_value_heads=HEADS)
    theirs = made(of("molmo2", "Molmo2VisionAttention"), config)
    return compare(theirs, copied(theirs, d_k=8))


DRAWN = (
    "modernbert_decoder", "mask2former", "granite4_vision", "falcon_h1", "moonshine", "speech_to_text",
    "jamba", "sam3_tracker", "instructblip", "molmo2",
)  # fmt: skip
# What the reader says of each class, in the words of the table.
READ = {
    "ModernBertDecoderAttention": (
        modernbert_decoder, PLAIN | HALVES | {"base": 160_000, "linear_bias": False}, False,
    ),
    "Granite4VisionTextAttention": (
        granite4_vision, PLAIN | HALVES | {"base": 10_000, "scale": "1", "linear_bias": False}, False,
    ),
    "FalconH1Attention": (falcon_h1, PLAIN | HALVES | {"base": 10_000, "linear_bias": False}, True),
    "MoonshineAttention": (
        moonshine, PLAIN | HALVES | {"layout": "pairs", "share": 0.875, "base": 10_000, "linear_bias": False},
        False,
    ),
    "Speech2TextAttention": (speech_to_text, PLAIN, False),
    "JambaAttention": (jamba, PLAIN | {"linear_bias": False}, True),
    "Mask2FormerAttention": (mask2former, PLAIN, False),
    "Sam3TrackerAttention": (sam3_tracker, PLAIN, False),
    "InstructBlipAttention": (instructblip, PLAIN | {"packed": True}, False),
    "InstructBlipQFormerMultiHeadAttention": (instructblip_qformer, PLAIN | {"output": "none"}, False),
    "Molmo2Attention": (
        molmo2, PLAIN | HALVES | {"base": 10_000, "norm": "RMSNorm", "linear_bias": False}, True,
    ),
    "Molmo2VisionAttention": (molmo2_vision, PLAIN, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def table():
    return published.census()


def test_every_equal_class_of_the_ten_families_is_read(table):
    """Drawn by ``random.Random(41).sample`` from the 307 families that were equal when this was written."""
    equal = table[(table["result"] == "equal") & table["folder"].isin(DRAWN)]
    assert set(equal["folder"]) == set(DRAWN)
    assert set(equal["class"]) == set(READ)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", READ)
@torch.no_grad()
def test_the_layer_of_a_reader_computes_the_same(name):
    theirs, ours = READ[name][0]()
    assert theirs.abs().max() > 0.1
    assert (theirs - ours).abs().max() <= 1e-5


@pytest.mark.parametrize("name", READ)
def test_the_table_says_what_the_reader_says(table, name):
    (row,) = table[table["class"] == name].to_dict("records")
    _, said, grouped = READ[name]
    found = {key: "" if row[key] != row[key] else row[key] for key in said}
    assert found == said
    assert (row["kv_heads"] < row["heads"]) == grouped
