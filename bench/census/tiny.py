"""Small models of every family in ``transformers``, and something for them to read."""

import inspect
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BATCH, N = 3, 13
# What a name of a size becomes, in the order in which it is tried; the first pattern that matches counts.
HEADS = (
    r"(num_|n_)?((encoder|decoder|attention|attn|query|cross|enc|dec|q)_)*(num_|n_)?"
    r"(attention_|attn_|query_)?(heads?|nhead)"
)
PATTERNS = (
    (r"(num_key_value_heads|num_kv_heads|n_kv_heads?|n_head_kv|kv_heads|num_key_value_groups)", "kv_heads"),
    (r".*swa_num_key_value_heads|.*_num_key_value_heads|num_global_key_value_heads", "kv_heads"),
    (rf"{HEADS}|num_attention_heads_\w+|\w*_num_attention_heads|\w+_attention_heads", "heads"),
    (r"(attention_|global_|swa_)?(head_dim|v_head_dim|d_kv|kv_channels|d_head|head_size)", "head"),
    (r"qk_rope_head_dim|rotary_dim", "rope"),
    (r"mamba_(n|num)_heads|n_mamba_heads", "heads"),
    (r"max_source_positions", "frames"),
    (r"(moe_)?(num|n)_(routed_|local_)?experts", "experts"),
    (r"(moe_)?num_experts_per_tok\w*|moe_topk|moe_k|moe_top_k|n_group|num_expert_groups?", "few"),
    (r"topk_group", "one"),
    (r"floor_scale", "few"),
    (r"image_embedding_size", "side"),
    (r"num_(object_|latent_)?queries", "queries"),
    (r"(\w+_)?vocab_size(_per_layer_input)?", "words"),
    (r"(\w+_)?(sliding_window|sliding_window_size|attention_window|attention_chunk_size|index_topk|local_window_size|local_attention"
     r"|attention_window_size)", "window"),
    (r"qk_nope_head_dim", "nope"),
    (r"\w*lora_rank|\w*latent_dim|o_lora_rank", "rank"),
    (r"(\w+_)?(intermediate_size|ffn_dim|d_ff|n_inner|ffn_hidden_size|mlp_dim|dim_feedforward|intermediate_dim"
     r"|hidden_dim_ffn|feed_forward_size|mlp_hidden_size|ff_dim)", "ff"),
    (r"hidden_size_per_layer_input|altup_size", "narrow"),
    (r"(\w+_)?(hidden_size|d_model|n_embd|embed_dim|hidden_dim|model_dim|encoder_dim|decoder_dim|embedding_size"
     r"|projection_dim|dim|emb_dim|embed_size|out_hidden_size|output_dim|encoder_hidden|text_dim|vision_dim)",
     "model"),
    (r"(num_|n_)?(hidden_|encoder_|decoder_|attention_)*(layers?|blocks?)|depth|num_hidden_layers|\w+_num_hidden_layers"
     r"|num_(?!feat|conv)(\w+_)?layers|(\w+_)?(encoder|decoder|transformer|hidden|fusion|lm|text)_layers"
     r"|n_layers|\w+_depth", "layers"),
)  # fmt: skip
SMALL = {
    "layers": 2, "heads": 6, "kv_heads": 2, "head": 16, "rope": 8, "nope": 12, "rank": 20, "ff": 48,
    "model": 96, "narrow": 8, "window": 5, "frames": 50, "experts": 8, "few": 2, "one": 1, "words": 512,
    "side": 4, "queries": 7,
}  # fmt: skip
PRESETS = (  # the first that builds and runs counts
    SMALL,
    SMALL | {"layers": 10},
    SMALL | {"heads": 4, "nope": 8, "rank": 16, "ff": 64, "model": 64},
    SMALL
    | {"heads": 4, "kv_heads": 4, "head": 32, "rope": 16, "nope": 16, "rank": 32, "ff": 128, "model": 128},
    SMALL
    | {"heads": 2, "kv_heads": 1, "head": 128, "rope": 64, "nope": 64, "rank": 32, "ff": 64, "model": 256},
)


def tiny(kind: type, preset: dict[str, int]) -> Any:
    """A configuration of this class with small sizes, windows and caps; all else stays its default."""
    return kind(**_changes(kind(), preset))


def _changes(config: Any, preset: dict[str, int]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in vars(config).items():
        if name.startswith("_") or name in getattr(config, "attribute_map", {}):
            continue
        if hasattr(value, "to_dict"):
            if value.model_type == "timm_backbone":
                changes |= {name: _backbone(), "use_timm_backbone": False, "backbone": None}
            elif inner := _changes(
                value, preset | {"layers": 99} if getattr(value, "out_features", None) else preset
            ):
                kept = {
                    k: v
                    for k, v in value.to_diff_dict().items()
                    if k not in ("model_type", "transformers_version")
                }
                changes[name] = type(value)(**(kept | inner))
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            size = next((size for pattern, size in PATTERNS if re.fullmatch(pattern, name)), None)
            if name == "window_size" and not hasattr(config, "patch_size"):
                size = "window"
            if size == "head" and value == getattr(config, "qk_rope_head_dim", None):
                size = "rope"
            if re.fullmatch(r"\w*token_(id|index)", name) and value >= 500:
                changes[name] = 3 + len(changes) % 17
            elif name in ("image_size", "img_size"):
                changes[name] = _side(config, value)
            elif size in preset:
                changes[name] = min(value, preset[size])
        elif name in ("image_size", "img_size") and isinstance(value, list | tuple):
            changes[name] = type(value)(_side(config, one) for one in value)
        elif isinstance(value, float) and "softcap" in name:
            changes[name] = 2.0  # so low that it is felt
        elif name in ("depths", "layer_depths") and isinstance(value, list | tuple):
            changes[name] = type(value)(min(depth, 2) for depth in value)
    before = {
        getattr(config, name): size
        for name, size in changes.items()
        if isinstance(size, int) and size == preset["model"]
    }
    for name, value in vars(config).items():  # [256, 256, 256] beside a width of 256
        if isinstance(value, list) and value and all(type(one) is int and one in before for one in value):
            changes[name] = [before[one] for one in value]
    if "use_cache" in vars(config):
        changes["use_cache"] = False
    has = vars(config)
    heads = next((changes[name] for name in ("num_attention_heads", "num_heads") if name in changes), None)
    if (
        "num_key_value_heads" in changes
        and heads
        and has["num_key_value_heads"] == has.get("num_attention_heads")
    ):
        changes["num_key_value_heads"] = heads
    if has.get("num_experts_per_tok", 0) is None:
        changes["num_experts_per_tok"] = 2
    if getattr(config, "attention_types", None) and "attention_layers" in vars(config):
        changes |= {"num_layers": 4, "attention_types": [[["global", "local"], 2]]}
    if preset["heads"] * preset["head"] == preset["model"] == 64 and has.get("head_dim", 0) is None:
        changes["head_dim"] = preset["head"]
    if has.get("vocab_size", 0) is None:
        changes["vocab_size"] = preset["words"]
    if has.get("prediction_length", 0) is None:
        changes["prediction_length"] = 4
    layers, all_layers = range(changes.get("num_hidden_layers") or 0), has.get("num_hidden_layers")
    of_each = {
        name: value
        for name, value in has.items()
        if isinstance(value, list | tuple) and value and len(value) == all_layers and not name.startswith("_")
    }
    kinds = [
        value
        for name, value in of_each.items()
        if name == "layer_types" or (0 in value and 1 in value and all(one in (0, 1) for one in value))
    ]
    if kinds and layers:
        layers = _two_of_each(list(zip(*kinds, strict=True)))
        changes["num_hidden_layers"] = len(layers)
    if layers:
        changes |= {name: [value[i] for i in layers] for name, value in of_each.items()}
        if isinstance(has.get("per_layer_config"), dict):
            changes["per_layer_config"] = {
                i: one for i, one in has["per_layer_config"].items() if int(i) < len(layers)
            }
    rope = getattr(config, "rope_parameters", None)
    if isinstance(rope, dict) and "mrope_section" in _code(config):
        changes["rope_parameters"] = _sections(
            rope, changes | {"head_dim": has.get("head_dim") and changes.get("head_dim")}
        )
    return changes


def _side(config: Any, side: int) -> int:
    """Of a picture of few patches."""
    patch = getattr(config, "patch_size", None)
    return min(side, max(4 * patch, 64) if isinstance(patch, int) else 64)


def _two_of_each(kinds: list[tuple]) -> Sequence[int]:
    """The first layers in which each kind is there twice, or as often as it is at all."""
    wanted = {kind: min(2, kinds.count(kind)) for kind in kinds}
    for length in range(1, len(kinds) + 1):
        if all(kinds[:length].count(kind) >= times for kind, times in wanted.items()):
            break
    return range(length) if length <= 12 else sorted(map(kinds.index, wanted)) * 2


def _backbone() -> Any:
    """A small convolution network that needs no other package."""
    from transformers import ResNetConfig

    return ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 8],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )


def _code(config: Any) -> str:
    """The file of the models of this configuration."""
    path = Path(inspect.getfile(type(config)))
    path = path.with_name(path.name.replace("configuration", "modeling"))
    return path.read_text() if path.exists() else ""


def _sections(rope: dict, changes: dict[str, Any]) -> dict:
    """Sections of a head that turn by different positions, for a smaller head."""
    if "rope_theta" not in rope or "num_attention_heads" not in changes:
        return rope
    width = changes.get("head_dim") or changes["hidden_size"] // changes["num_attention_heads"]
    pairs = int(width * (rope.get("partial_rotary_factor") or 1)) // 2
    parts = len(rope.get("mrope_section") or "thw")
    share = [pairs // parts] * parts
    share[-1] += pairs - sum(share)
    return rope | {"mrope_section": share}


def models(module: Any) -> list[type]:
    """The classes of models of a file that have a configuration: the barest first."""
    from transformers import PreTrainedModel

    found = [
        kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, PreTrainedModel)
        and kind.__module__ == module.__name__
        and getattr(kind, "config_class", None)
        and not name.endswith("PreTrainedModel")
    ]
    return sorted(found, key=lambda kind: (not kind.__name__.endswith("Model"), len(kind.__name__)))


@torch.no_grad()
def stir(model: nn.Module) -> None:
    """Random numbers in all weights, those that start at 0 or 1, too."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.requires_grad and parameter.numel():
            if parameter.ndim < 2:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif parameter.numel() < 2**20:
                fan_in = parameter[0].numel()
                parameter.copy_(torch.randn_like(parameter) * (0.7 / fan_in**0.5) + parameter * 0.1)


def inputs(model: nn.Module) -> Iterator[dict[str, Any]]:
    """What the model may take, the most likely first: random numbers under the names of its arguments."""
    config, takes = model.config, inspect.signature(model.forward).parameters
    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    audio = getattr(config, "audio_config", None) or config
    words = {}
    vocabulary = getattr(text, "vocab_size", None)
    low, high = (20, min(vocabulary, 500)) if isinstance(vocabulary, int) and vocabulary > 30 else (0, 3)
    ids = lambda n=N: torch.randint(low, high, (BATCH, n))  # noqa: E731
    width = next((getattr(config, a) for a in ("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim")
                  if isinstance(getattr(config, a, None), int)), 96)  # fmt: skip
    states = torch.randn(BATCH, N, width)
    channels = _first(vision, "num_channels", "in_channels", "in_chans") or 3
    side = _first(vision, "image_size", "img_size") or 64
    height, wide = side if isinstance(side, list | tuple) else (side, side)
    mels = (
        _first(audio, "num_mel_bins", "input_feat_per_channel", "feature_size", "input_dim", "n_mels") or 80
    )
    frames = 2 * (_first(audio, "max_source_positions") or 60)
    options = {
        "input_ids": ids,
        "decoder_input_ids": ids,
        "pixel_values": lambda: torch.randn(BATCH, channels, height, wide),
        "input_features": lambda: torch.randn(BATCH, mels, min(frames, 3000)),
        "input_values": lambda: torch.randn(BATCH, 4000),
        "inputs_embeds": lambda: states,
        "hidden_states": lambda: states,
    }
    for name in ("input_ids", "decoder_input_ids", "pixel_values", "input_features", "input_values"):
        if name in takes:
            words[name] = options[name]()
    if "bbox" in takes:
        words["bbox"] = torch.tensor([1, 2, 3, 4]).expand(BATCH, N, 4)
    if "lang_ids" in takes:
        words["lang_ids"] = torch.zeros(BATCH, dtype=torch.long)
    if "input_ids" in words and "attention_mask" in takes:
        mask = torch.ones(BATCH, N, dtype=torch.long)
        yield {**words, "attention_mask": _padded(mask)}
    yield words
    for name in ("input_ids", "pixel_values", "input_features", "input_values"):
        if name in words and len(words) > 1:
            yield {
                name: words[name],
                **(
                    {}
                    if name != "input_ids" or "decoder_input_ids" not in words
                    else {"decoder_input_ids": words["decoder_input_ids"]}
                ),
            }
    if "input_features" in words:
        yield words | {"input_features": torch.randn(BATCH, 60, mels)}
        yield {"input_features": torch.randn(BATCH, 1, _first(audio, "spec_size") or 64, mels)}
    if "pixel_values" in words:
        yield words | {"pixel_values": torch.randn(BATCH, channels, 64, 64)}
        many = _first(vision, "num_frames") or 2
        yield words | {"pixel_values": torch.randn(BATCH, many, channels, height, wide)}
    if "grid_thw" in takes:
        patch = _first(config, "patch_size") or 14
        width = channels * (_first(config, "temporal_patch_size") or 1) * patch**2
        yield {next(iter(takes)): torch.randn(16, width), "grid_thw": torch.tensor([[1, 4, 4]])}
    for name in ("inputs_embeds", "hidden_states"):
        if name in takes:
            yield {name: options[name]()}
    if "input_values" in words:
        yield {"input_values": torch.randn(BATCH, 1, 4000)}
        yield {"input_values": torch.randn(BATCH, _first(config, "max_length") or 64, mels)}


def _padded(mask: Tensor) -> Tensor:
    """The last tokens of the last text are padding."""
    mask[-1, -4:] = 0
    return mask


def _first(config: Any, *names: str) -> Any:
    return next((getattr(config, name) for name in names if getattr(config, name, None)), None)


def arguments(layer: nn.Module) -> Iterator[dict[str, Any]]:
    """What one layer may take, for a layer that its model calls only with inputs of a special form."""
    takes = inspect.signature(layer.forward).parameters
    linear = [
        part for part in layer.modules() if isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D"
    ]
    if not linear:
        return
    widths = [one.in_features if isinstance(one, nn.Linear) else one.weight.shape[0] for one in linear]
    keys = next(
        (
            one.in_features
            for name, one in layer.named_modules()
            if isinstance(one, nn.Linear) and re.search("k_proj|key|kv", name)
        ),
        widths[0],
    )
    cross = any(
        re.search("encoder_hidden_states|key_value_states|cross_attention_states|context", name)
        for name in takes
    )
    for shape in ((BATCH, N), (N,), (BATCH, 4, 4)):
        n = shape[-1] if len(shape) < 3 else 16
        at = torch.arange(n)
        given: dict[str, Any] = {}
        for i, (name, takes_one) in enumerate(takes.items()):
            needed = (
                takes_one.default is inspect.Parameter.empty
                and takes_one.kind is takes_one.POSITIONAL_OR_KEYWORD
            )
            if i == 0:
                given[name] = torch.randn(*shape, widths[0])
            elif (
                re.search("encoder_hidden_states|key_value_states|cross_attention_states|context", name)
                and "mask" not in name
            ):
                if needed or "Cross" in type(layer).__name__:
                    given[name] = torch.randn(BATCH, N + 4, keys)
            elif re.search("mask", name) and (
                needed or (name == "attention_mask" and len(shape) == 2 and not cross)
            ):
                seen = torch.ones(n, n, dtype=torch.bool).tril()
                given[name] = (
                    torch.zeros(n, n)
                    .masked_fill(~seen, torch.finfo(torch.float32).min)
                    .expand(shape[0] if len(shape) > 1 else 1, 1, n, n)
                )
            elif name in ("position_embeddings", "cos", "rotary_pos_emb", "cos_sin"):
                width = _first(layer, "head_dim", "attention_head_size", "d_k")
                if width:
                    angles = at[:, None] * 10000.0 ** (torch.arange(0, width, 2) / -width).repeat(2)
                    angles = angles if len(shape) == 1 else angles[None]
                    given[name] = (angles.cos(), angles.sin())
            elif name == "cu_seqlens":
                given[name] = torch.tensor([0, n], dtype=torch.int32)
            elif name == "max_seqlen":
                given[name] = n
            elif name in ("position_ids", "cache_position", "positions") and needed:
                given[name] = at[None]
            elif needed and re.search("key|value|kv|hidden|query|states", name):
                given[name] = torch.randn(*shape, keys)
        yield given
