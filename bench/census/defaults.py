"""The sizes of published models: those that the configuration of a text decoder has by default."""

import importlib
import inspect
from typing import Any

from bench.census import tiny
from mha_course.chapters.published import CENSUS_COLUMNS

COLUMNS = tuple(name for name in CENSUS_COLUMNS if name.startswith("default_"))
WINDOWS = "sliding_window", "attention_window_size", "attention_chunk_size", "window_size"
LOCAL = ("sliding", "chunked", "local")  # in the name of a kind of layer


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a class with the default sizes, if it is that of a text decoder. No model is built."""
    if row["kind"] != "text decoder":
        return row
    module = importlib.import_module(f"transformers.models.{row['folder']}.{row['file']}")
    return row | defaults(configuration(getattr(module, row["class"]), module)())


def configuration(layer: type, module: Any) -> type:
    """The class of the layer's ``config``: that of the model of its name, or its annotation."""
    models = tiny.models(module)
    named = [one for one in models if layer.__name__.startswith(one.__name__.removesuffix("Model"))]
    if named:
        return max(named, key=lambda one: len(one.__name__)).config_class
    given = inspect.signature(layer.__init__).parameters.get("config")
    told = None if given is None else given.annotation
    told = getattr(module, told, None) if isinstance(told, str) else told
    return told if hasattr(told, "model_type") else models[0].config_class


def defaults(config: Any) -> dict[str, Any]:
    """The columns, read from a configuration.

    Sizes of the decoder, if there is an encoder, too. Where layers differ, they are those of the layers that
    see all earlier tokens; ``default_window_base`` is the base in the others.
    """
    whole = config.get_text_config(decoder=True)
    config = _layer(whole)
    heads = _number(config, "num_attention_heads")
    width = _number(config, "hidden_size", "d_model")
    d_k = _number(config, "head_dim", "d_kv", "kv_channels") or (width and heads and width // heads)
    latent = _number(config, "qk_nope_head_dim"), _number(config, "qk_rope_head_dim")
    shared = _number(config, "num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        shared = 1
    base, window_base = _bases(whole)
    if heads is None:  # it holds others, and does not say it for all of them
        return dict.fromkeys(COLUMNS)
    return {
        "default_heads": heads,
        "default_kv_heads": shared or heads,
        "default_d_k": sum(latent) if all(latent) else d_k,
        "default_base": base,
        "default_window_base": window_base,
        "default_window": _window(whole),
        "default_layers": _number(whole, "num_hidden_layers", "decoder_layers"),
    }


def _layer(config: Any) -> Any:
    """That of the first layer that sees all, if layers differ in their sizes."""
    if not getattr(config, "is_heterogeneous", False):
        return config
    kinds = config.layer_types
    return config.per_layer_config[next((i for i, kind in enumerate(kinds) if not kind.startswith(LOCAL)), 0)]


def _number(config: Any, *names: str) -> int | None:
    """The first of these that is a whole number above 0."""
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)


def _bases(config: Any) -> tuple[float | None, float | None]:
    """Of the rotary angles: in layers that see all, and in those with a window if it is another."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {kind: one for kind, one in rope.items() if isinstance(one, dict)} or {"full_attention": rope}
    local = [one.get("rope_theta") for kind, one in kinds.items() if kind.startswith(LOCAL)]
    whole = [one.get("rope_theta") for kind, one in kinds.items() if not kind.startswith(LOCAL)]
    base = next(iter([*whole, *local]), None)
    return base, next((one for one in local if one not in (None, base)), None)


def _window(config: Any) -> int | None:
    """How many tokens a query sees in the layers with a window, if there are any by default."""
    kinds = getattr(config, "layer_types", None)
    if kinds and not any(kind.startswith(LOCAL) for kind in kinds):
        return None
    return _number(config, *WINDOWS)
