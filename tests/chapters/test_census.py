"""The rebuilt layers against originals that are written here, and the census against its table."""

import json
import math
import random
import re
import subprocess
import sys

import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import nn

from mha_course.chapters import published
from mha_course.chapters.observe import observed
from mha_course.chapters.rebuild import NotCovered, rebuild
from mha_lab.positions import apply_rotary, rotary_frequencies

HEADS, KV_HEADS, D_K, D_MODEL, BATCH, N = 6, 2, 8, 20, 3, 11


class Original(nn.Module):
    """Attention in the usual handwriting, with one thing changed at a time."""

    def __init__(self, **options):
        super().__init__()
        self.options = options
        self.qkv = nn.Linear(D_MODEL, (HEADS + 2 * KV_HEADS) * D_K)
        self.o = nn.Linear(HEADS * D_K, D_MODEL)
        self.norm = nn.RMSNorm(D_K, eps=1e-6)
        self.gate = nn.Linear(D_MODEL, HEADS * D_K)
        self.sinks = nn.Parameter(torch.randn(HEADS))
        nn.init.normal_(self.norm.weight, 1.0, 0.3)

    def forward(self, hidden_states, attention_mask=None):
        take = self.options.get
        split = self.qkv(hidden_states).split([n * D_K for n in (HEADS, KV_HEADS, KV_HEADS)], dim=-1)
        q, k, v = (x.unflatten(-1, (-1, D_K)).transpose(1, 2) for x in split)
        turn = {
            "layout": take("layout", "halves"),
            "frequencies": rotary_frequencies(take("width", D_K), base=take("base", 100)),
        }
        if take("norm") == "before":
            q, k = self.norm(q), self.norm(k)
        if take("base") or take("layout"):
            q, k = apply_rotary(q, **turn), apply_rotary(k, **turn)
        if take("angles") is not None:  # of positions on several axes
            q, k = (turned(x, take("angles")) for x in (q, k))
        if take("norm") == "after":
            q, k = self.norm(q), self.norm(k)
        q = q * take("times", 1)
        groups = HEADS // KV_HEADS
        share = (
            (lambda x: x.repeat(1, groups, 1, 1))
            if take("tiled")
            else (lambda x: x.repeat_interleave(groups, dim=1))
        )
        scores = q @ share(k).mT * take("scale", 1 / math.sqrt(D_K))
        if take("cap"):
            scores = take("cap") * torch.tanh(scores / take("cap"))
        if take("squared"):
            scores = scores * scores.abs()
        if attention_mask is not None:
            scores = scores + attention_mask
        if take("sinks"):
            column = self.sinks[:, None, None].expand(len(q), HEADS, N, 1)
            weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        heads = (weights @ share(v)).transpose(1, 2).flatten(2)
        if take("gate"):
            heads = heads * torch.sigmoid(self.gate(hidden_states))
        output = self.o(heads)
        return output + 0.01 * output**2 if take("bent") else output


def turned(x, angles):
    """The first and the second half of each head by these angles, ``(n, d_k / 2)``."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


def calls_of(module, mask=None):
    """Some calls with random inputs."""
    calls = []
    for _ in range(4):
        with torch.no_grad(), observed(module) as seen:
            module(torch.randn(BATCH, N, D_MODEL), attention_mask=mask)
        calls += seen
    return calls


def hidden(seen):
    """As the mask of ``transformers``: large negative numbers."""
    return torch.zeros(N, N).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]


AT = torch.arange(N)
CAUSAL = AT[:, None] >= AT
MASKS = {
    "full": None,
    "causal": hidden(CAUSAL),
    "window": hidden(CAUSAL & (AT[:, None] - AT < 3)),
    "chunk": hidden(CAUSAL & (AT[:, None] // 4 == AT // 4)),
}
ANGLES = (torch.arange(N)[:, None] * torch.arange(1, D_K // 2 + 1)) ** 2 % 7 / 3  # none at token 0
CASES = [
    ({}, "full", {"positions": None, "heads": 6, "kv_heads": 2, "packed": True, "scale": "1/sqrt(d_k)"}),
    ({"base": 100}, "causal", {"positions": "rotary", "layout": "halves", "share": 1.0, "base": 100.0}),
    ({"layout": "pairs", "base": 500}, "window", {"layout": "pairs", "base": 500.0, "window": 3}),
    ({"base": 100, "width": 4}, "chunk", {"share": 0.5, "base": 100.0, "window": 4, "mask": "chunk"}),
    ({"layout": "pairs", "width": 4}, "causal", {"share": 0.5, "layout": "pairs"}),
    ({"angles": ANGLES}, "full", {"positions": "rotary, given angles", "layout": "halves", "share": 1.0}),
    ({"norm": "before", "base": 100}, "causal", {"norm": "RMSNorm"}),
    ({"norm": "after", "base": 100}, "causal", {"norm": "RMSNorm"}),
    ({"scale": 0.3}, "full", {"scale": "0.3"}),
    ({"scale": 1, "times": D_K**-0.5}, "full", {"scale": "1/sqrt(d_k)"}),
    ({"scale": 1, "times": D_K**-0.5, "base": 100}, "full", {"scale": "1/sqrt(d_k)"}),
    ({"scale": 1, "times": D_K**-0.5, "norm": "after", "base": 100}, "full", {"scale": "1/sqrt(d_k)"}),
    ({"scale": 1, "times": 0.5, "norm": "before", "base": 100}, "full", {"scale": "0.5"}),
    ({"scale": 1}, "full", {"scale": "1"}),
    ({"cap": 2.0}, "causal", {"cap": None}),
    ({"sinks": True, "base": 100}, "causal", {"sinks": True}),
    ({"gate": True}, "causal", {"gate": True}),
    ({"tiled": True}, "causal", {"kv_heads": 6}),
]


@pytest.mark.unchecked
@pytest.mark.parametrize(("options", "mask", "features"), CASES, ids=str)
def test_what_is_rebuilt_computes_the_same_for_new_inputs(options, mask, features):
    original = Original(**options)
    if "cap" in options:  # an attribute names it, as in transformers
        original.attn_logit_softcapping, features = options["cap"], {"cap": options["cap"]}
    *read, new = calls_of(original, MASKS[mask])
    made = rebuild(read)
    difference, largest = made.difference(new)
    assert difference <= 1e-5
    assert largest > 0.1
    assert {"mask": mask} | features == {name: made.features[name] for name in {"mask": mask} | features}


@pytest.mark.unchecked
def test_the_rebuilt_layer_has_copies_and_does_not_run_the_original(monkeypatch):
    original = Original(base=100, norm="before", gate=True)
    *read, new = calls_of(original, MASKS["causal"])
    made = rebuild(read)
    theirs = {id(p) for p in original.parameters()} | {p.data_ptr() for p in original.parameters()}
    for parameter in made.layer.parameters():
        assert not {id(parameter), parameter.data_ptr()} & theirs
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.zero_()
    monkeypatch.setattr(Original, "forward", lambda *_: pytest.fail("the original ran"))
    assert made.difference(new)[0] <= 1e-5


@pytest.mark.unchecked
def test_another_weight_of_the_original_is_not_equal():
    """Equal is said of what was compared: of a call with other weights, the difference is large."""
    original = Original(base=100)
    made = rebuild(calls_of(original)[:3])
    with torch.no_grad():
        original.qkv.weight[0, 0] += 0.5
    assert made.difference(calls_of(original)[0])[0] > 1e-4


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("options", "why"),
    [({"squared": True}, "other scores"), ({"cap": 2.0}, "other scores")],
    ids=str,
)
def test_what_is_not_covered_says_why(options, why):
    with pytest.raises(NotCovered, match=f"^{why}$"):
        rebuild(calls_of(Original(**options), MASKS["causal"]))


@pytest.mark.unchecked
def test_what_comes_after_the_last_linear_map_is_told():
    made = rebuild(calls_of(Original(bent=True)))
    assert made.out is not None
    assert rebuild(calls_of(Original())).out is None


@pytest.mark.unchecked
def test_calls_of_something_else_get_one_sentence():
    with torch.no_grad(), observed(linear := nn.Linear(2, 3)) as calls:
        linear(torch.randn(3, 4, 2))
    with pytest.raises(
        ValueError, match=r"^calls: expected two calls or more of one module, got 0 of 0 modules"
    ):
        rebuild(calls)
    with pytest.raises(ValueError, match=r"^calls: expected .+ got 8 of 2 modules"):
        rebuild([*calls_of(Original()), *calls_of(Original())])
    with pytest.raises(TypeError, match=r"^calls: expected a Call, got Linear"):
        rebuild([linear, linear])
    with pytest.raises(TypeError, match=r"^model: expected a Module, got str"), observed("gpt2"):
        pass


# The census


@pytest.fixture(scope="module")
def table():
    return published.census()


def taken(names):
    """Rows of some files, from a process that has imported nothing else."""
    pytest.importorskip("transformers")
    code = "import json, sys; from bench import census; print(json.dumps(list(census.taken(sys.argv[1:]))))"
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return [row for _, rows in json.loads(done.stdout) for row in rows]


@pytest.mark.parametrize(("fault", "reason"), [("ValueError", "error"), ("MemoryError", "too large")])
def test_a_fault_of_the_census_is_not_said_to_be_the_size_of_a_family(fault, reason):
    pytest.importorskip("transformers")
    code = (
        "import json\nfrom bench import census\nfrom bench.census import families\n"
        f"def fail(name): raise {fault}('a fault')\n"
        "families.rows = fail\n"
        "print(json.dumps(list(census.taken(['llama.modeling_llama']))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    ((_, rows),) = json.loads(done.stdout)
    assert {row["reason"] for row in rows} == {reason}
    assert reason != "error" or "a fault" in rows[0]["error"]


def compared(table, rows):
    """What is new, gone or changed, one line for each class; differences below the limit may vary."""
    shown = [
        "result",
        "reason",
        "heads",
        "kv_heads",
        "d_k",
        "positions",
        "all_positions",
        "layout",
        "norm",
        "temperature",
        "masks",
        "windows",
        "bias",
        *DEFAULTS,
    ]
    text = lambda value: "" if value is None or value != value else str(value)  # noqa: E731
    old = {(r["folder"], r["class"]): r for r in table.to_dict("records")}
    new = {(r["folder"], r["class"]): r for r in rows}
    lines = [f"{'.'.join(key)} is new" for key in new.keys() - old.keys()]
    lines += [f"{'.'.join(key)} is gone" for key in old.keys() - new.keys()]
    for key in new.keys() & old.keys():
        for name in shown:
            was, now = text(old[key][name]), text(new[key].get(name))
            if was != now and f"{was}.0" != now and f"{now}.0" != was:
                lines.append(f"{'.'.join(key)}: {name} was {was!r}, is {now!r}")
    return sorted(lines)


def of_installed(table):
    """Skip if the table is of another version; the slow test says what has changed."""
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != table["version"][0]:
        pytest.skip(f"the table is of transformers {table['version'][0]}")


def test_rounding_does_not_choose_which_layer_of_a_class_is_shown():
    """It differs from processor to processor: of equal layers the widest, with the largest difference."""
    from bench.census.families import _worst

    narrow, wide = {"result": "equal", "d_k": 3}, {"result": "equal", "d_k": 5}
    for one, other in ((1e-8, 2e-8), (2e-8, 1e-8)):
        shown = _worst([narrow | {"difference": one}, wide | {"difference": other}])
        assert (shown["d_k"], shown["difference"], shown["layers"]) == (5, 2e-8, 2)
    wrong = {"result": "differs", "d_k": 3, "difference": 0.5}
    assert _worst([wide | {"difference": 1e-8}, wrong])["difference"] == 0.5


def test_layers_with_and_without_positions_both_run(table):
    """Every fourth layer of these has none, and Llama 4's have a temperature by position then."""
    of_installed(table)
    rows = {row["class"]: row for row in taken(["smollm3.modeling_smollm3", "llama4.modeling_llama4"])}
    for name, temperature in (("SmolLM3Attention", False), ("Llama4TextAttention", True)):
        row = rows[name]
        assert (row["result"], row["positions"], row["all_positions"]) == ("equal", "rotary", "none + rotary")
        assert (row["temperature"], row["layers"]) == (temperature, 4)


def test_sizes_of_the_small_models_can_change_the_part_that_is_turned(table):
    """GPT-J turns 64 of 256 columns by default, and half of a head in the census."""
    of_installed(table)
    from transformers import GPTJConfig

    config = GPTJConfig()
    assert config.rotary_dim / (config.n_embd // config.n_head) == 0.25
    assert table[table["class"] == "GPTJAttention"]["share"].item() == 0.5


def test_twenty_families_are_as_in_the_table(table):
    of_installed(table)
    from bench.census import families

    equal = sorted(set(table[table["result"] == "equal"]["folder"]))
    folders = random.Random(7).sample(equal, 20)
    names = [name for name in families.files() if name.partition(".")[0] in folders]
    rows = taken(names)
    assert compared(table[table["folder"].isin(folders)], rows) == []
    assert all(row["difference"] <= 1e-5 for row in rows if row["result"] == "equal")


@pytest.mark.slow
def test_all_families_are_as_in_the_table(table):
    """With a newer ``transformers``, it lists what that changes."""
    pytest.importorskip("transformers")
    from bench.census import families

    assert compared(table, taken(families.files())) == []


def test_without_transformers_the_census_says_what_it_needs(monkeypatch):
    from bench import census

    monkeypatch.setattr(census, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"^The census needs transformers"):
        census.report()


DEFAULTS = [name for name in published.CENSUS_COLUMNS if name.startswith("default_")]


def test_default_sizes_are_those_of_the_table_of_published_models(table):
    """``MODELS`` was filled by hand; these of its models are the defaults of their classes."""
    rows = table.set_index("class")
    for name in ("GPT-2", "Llama 2 7B", "Falcon 7B", "Mistral 7B v0.1", "GPT-OSS 20B", "DeepSeek-V3"):
        model = published.MODELS[name]
        folder = re.search(r"(\w+)Config", model.source)[1]
        row = rows.loc["GPT2Attention" if name == "GPT-2" else f"{folder}Attention"][DEFAULTS]
        wanted = [model.num_heads, model.num_kv_heads, model.d_k, model.base, None, model.window]
        wanted += [36 if name == "GPT-OSS 20B" else model.num_layers]  # 24: of the model card
        assert [None if value != value else value for value in row] == wanted, name
    gemma = rows.loc["Gemma3Attention"]  # the bases of two kinds of layer, as in MODELS
    assert (gemma["default_base"], gemma["default_window_base"]) == (1_000_000, 10_000)


def test_only_text_decoders_have_default_sizes(table):
    decoders = table["kind"] == "text decoder"
    assert table[~decoders][DEFAULTS].isna().all(axis=None)
    without = table[decoders & table["default_heads"].isna()]
    assert set(without["class"]) == {"BltSelfAttention", "DeepseekOcr2VisionAttention"}  # not in their own
    sized = table[table["default_heads"].notna()]
    assert (sized["default_heads"] % sized["default_kv_heads"] == 0).all()
    assert sized[["default_kv_heads", "default_d_k"]].notna().all(axis=None)


# The small configuration has another size than the small model, or is refused by itself.
OTHER = {
    "DiffusionGemmaDecoderTextAttention", "DiffusionGemmaEncoderTextAttention",  # 512 in layers that see all
    "Gemma4TextAttention", "Gemma4UnifiedTextAttention",
    "Molmo2Attention", "Qwen3OmniMoeCode2WavAttention",  # small only inside another
}  # fmt: skip


@pytest.mark.parametrize(
    "some", [pytest.param(None, marks=pytest.mark.slow, id="all"), pytest.param(20, id="twenty")]
)
def test_what_is_read_from_a_small_configuration_is_what_its_layers_have(table, some):
    """The default sizes are read from a configuration in the same way, and no model shows those."""
    of_installed(table)
    code = """if True:
        import importlib, json, sys
        from bench.census import defaults, tiny
        for folder, file, name in json.loads(sys.argv[1]):
            module, found = importlib.import_module(f"transformers.models.{folder}.{file}"), []
            kind = defaults.configuration(getattr(module, name), module)
            for preset in tiny.PRESETS:
                try:
                    config = tiny.tiny(kind, preset)
                except Exception:
                    continue
                read = defaults.defaults(config)
                found.append([read[f"default_{size}"] for size in ("heads", "kv_heads", "d_k")])
            print(json.dumps(found))
    """
    told = table[(table["result"] == "equal") & table["default_heads"].notna()]
    told = told[~told["class"].isin(OTHER)]
    told = told.sample(some, random_state=7) if some else told
    names = told[["folder", "file", "class"]].to_numpy().tolist()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(names)],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    read = map(json.loads, done.stdout.splitlines())
    measured = told[["heads", "kv_heads", "d_k"]].astype(int).to_numpy().tolist()
    wrong = [
        (name, one, some)
        for (*_, name), one, some in zip(names, measured, read, strict=True)
        if one not in some
    ]
    assert wrong == []


def test_default_sizes_are_written_again_without_a_new_census(table, tmp_path, monkeypatch):
    of_installed(table)
    from bench import census

    part = table[table["folder"].isin(["gemma3", "gpt2", "vit"])]
    kept = [name for name in table if name not in DEFAULTS]
    for file in ("whole", "bare"):
        monkeypatch.setattr(published, "CENSUS", tmp_path / file)
        part[list(table) if file == "whole" else kept].to_csv(tmp_path / file, index=False)
        census.fill()
        assert_frame_equal(published.census(), part.reset_index(drop=True), check_dtype=False)
    part.assign(version="1.0").to_csv(tmp_path / "bare", index=False)
    with pytest.raises(SystemExit, match=r"of transformers 1.0, .* anew"):
        census.fill()


def test_nothing_is_equal_that_was_not_run(table):
    equal = table[table["result"] == "equal"]
    assert (equal["difference"] <= 1e-5).all()
    assert (equal["largest"] > 1e-3).all()
    assert table[table["result"] != "equal"][["reason", "difference"]].notna().any(axis=1).all()
    assert not table.duplicated(["folder", "file", "class"]).any()
