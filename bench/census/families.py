"""One family at a time: its models are built small, run, watched, and their attention is rebuilt."""

import importlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.census import defaults, tiny
from mha_course.chapters.observe import Call, observed
from mha_course.chapters.rebuild import NotCovered, rebuild

EQUAL = 1e-5  # the largest difference in float32
FIT, ENOUGH = 3, 4  # calls to read from; layers of one class
SECONDS = 20  # of a process, after which no model is built: processor time, so that load changes little


def files() -> dict[str, Path]:
    """The files of ``transformers`` that define an attention module, by folder and name."""
    import transformers

    paths = sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"))
    return {f"{path.parent.name}.{path.stem}": path for path in paths if classes(path)}


def classes(path: Path) -> list[str]:
    """The attention modules that a file defines: names of outputs and of arguments can hold the word, too."""
    other = r"TypedDict|torch\.autograd|\w*ModelOutput"
    return re.findall(rf"^class (\w*Attention\w*)\((?!{other})", path.read_text(), re.MULTILINE)


def rows(name: str) -> list[dict[str, Any]]:
    """What was found of each attention class of the file ``folder.modeling_name``."""
    module = importlib.import_module(f"transformers.models.{name}")
    wanted = classes(Path(module.__file__))
    found: dict[str, list[dict[str, Any]]] = {}
    called: set[str] = set()
    errors: list[str] = []
    without = 0
    for kind in tiny.models(module):
        if without == 2 or time.process_time() > SECONDS or not set(wanted) - set(found):
            break
        before, first = len(found), None
        for model in _small(kind, errors):
            first = first or model
            groups = list(_watched(model, module.__name__, called, errors))
            if groups:
                break
        if first is not None:
            model = model if groups else first
            groups += _alone(model, module.__name__, set(wanted) - called, errors)
            without += len(found) == before
        for calls in groups if first is not None else ():
            name_of = type(calls[0].module).__name__
            if len(found.get(name_of, ())) < ENOUGH and (row := _tried(calls, model)) is not None:
                found.setdefault(name_of, []).append(row | {"model": kind.__name__})
    for one in set(wanted) - called - set(found):
        for part, calls in _made(getattr(module, one), tiny.models(module)[:4], errors):
            if (row := _tried(calls, part)) is not None:
                found.setdefault(type(calls[0].module).__name__, []).append(row | {"model": ""})
    for one in wanted:
        if one not in found and one in called:
            found[one] = [{"kind": "", "result": "not covered", "reason": _without_softmax(one)}]
        elif one not in found and re.search(PARTS, one):
            found[one] = [{"kind": "", "result": "not covered", "reason": "holds another"}]
        elif one not in found and re.search("Flash|Sdpa", one):
            found[one] = [{"kind": "", "result": "not covered", "reason": "another kernel"}]
        elif one not in found:
            found[one] = [
                {
                    "kind": "",
                    "result": "not covered",
                    "reason": _why(errors),
                    "error": " | ".join(dict.fromkeys(errors))[:2000],
                }
            ]
    told = {
        "version": version(),
        "folder": name.partition(".")[0],
        "file": name.partition(".")[2],
        "year": year(Path(module.__file__)),
    }
    return [defaults.filled(told | {"class": one, **_worst(tries)}) for one, tries in found.items()]


def version() -> str:
    """That of ``transformers``."""
    import transformers

    return transformers.__version__


def year(path: Path) -> int | None:
    """That of the file's licence."""
    found = re.search(r"Copyright.{0,20}(20\d\d)", path.read_text())
    return int(found[1]) if found else None


def stopped(name: str, reason: str = "too large", error: str = "") -> list[dict[str, Any]]:
    """The rows of a family whose process has ended before it wrote them, or in which the census failed."""
    path = files()[name]
    row = {
        "file": name.partition(".")[2],
        "version": version(),
        "year": year(path),
        "kind": "",
        "result": "not covered",
        "reason": reason,
        "error": error,
    }
    return [row | {"class": one} for one in classes(path)]


def kind(config: Any, mask: str, cross: bool) -> str:
    """What the layer reads, by its configuration and its mask."""
    if cross:
        return "cross-attention"
    has = set(vars(config)) if config is not None else set()
    if has & {"patch_size", "image_size", "num_channels"}:
        return "vision"
    if has & {"num_mel_bins", "feat_extract_norm", "sampling_rate", "feature_size"}:
        return "audio"
    if "vocab_size" in has:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as DECODERS

        causal = mask in ("causal", "window", "chunk") or (not mask and config.model_type in DECODERS)
        return "text decoder" if causal else "text encoder"
    return "other"


def _small(kind: type, errors: list[str]) -> Iterator[nn.Module]:
    """The model with small sizes, in one preset after another."""
    for preset in tiny.PRESETS:
        if time.process_time() > SECONDS:
            return
        try:
            torch.manual_seed(0)
            model = kind._from_config(tiny.tiny(kind.config_class, preset), attn_implementation="eager")
        except Exception as error:
            errors.append(f"build: {type(error).__name__}: {error}")
            continue
        model = model.eval().float()
        tiny.stir(model)
        yield model


def _watched(model: nn.Module, file: str, called: set[str], errors: list[str]) -> Iterator[Sequence[Call]]:
    """The calls of each layer of this file, in the whole model or in the models that it holds."""
    from transformers import PreTrainedModel

    done: set[nn.Module] = set()
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and part not in done:
            some: set[str] = set()

            def note(one: nn.Module, _: Any, some: set[str] = some) -> None:
                some.add(type(one).__name__)

            hooks = [one.register_forward_pre_hook(note) for one in part.modules()]
            runs = _runs(part, tiny.inputs, errors)
            for hook in hooks:
                hook.remove()
            if runs:
                done.update(part.modules())
                called |= some
            yield from _same(runs, file)


def _alone(model: nn.Module, file: str, wanted: set[str], errors: list[str]) -> Iterator[Sequence[Call]]:
    """The calls of layers of these classes, each by itself: the model takes only inputs of its own form."""
    for part in model.modules():
        if type(part).__name__ in wanted and type(part).__module__ == file:
            for calls in _same(_runs(part, tiny.arguments, errors), file):
                for call in calls:
                    call.alone = True
                yield calls


def _made(kind: type, holders: list[type], errors: list[str]) -> Iterator[tuple[nn.Module, Sequence[Call]]]:
    """The calls of a layer that is built by itself: no model holds it by default, or none builds."""
    for holder, preset in itertools.product(holders, tiny.PRESETS):
        if time.process_time() > 2 * SECONDS:
            return
        try:
            whole = tiny.tiny(holder.config_class, preset)
            configs = list(_nested(whole))
        except Exception as error:
            errors.append(f"build: {error!r}")
            continue
        for config, more in itertools.product(configs, ({"layer_idx": 0}, {})):
            try:
                config._attn_implementation = "eager"
                layer = kind(config, **more).eval().float()
                layer.config = config
                tiny.stir(layer)
            except Exception as error:
                errors.append(f"build: {error!r}")
                continue
            groups = list(_same(_runs(layer, tiny.arguments, errors), kind.__module__))
            for calls in groups:
                for call in calls:
                    call.alone = True
                yield layer, calls
            if groups:
                return


def _nested(config: Any) -> Iterator[Any]:
    """A configuration and all those in it."""
    yield config
    for one in vars(config).values():
        if hasattr(one, "to_dict"):
            yield from _nested(one)


def _same(runs: list[list[Call]], file: str) -> Iterator[Sequence[Call]]:
    """The calls of one layer of this file in all runs."""
    for calls in zip(*runs, strict=False):
        if len({id(call.module) for call in calls}) == 1 and type(calls[0].module).__module__ == file:
            yield calls


def _config(model: nn.Module, layer: nn.Module) -> Any:
    """The layer's, or that of the innermost model that holds it."""
    holders = [
        part
        for part in model.modules()
        if hasattr(part, "config") and any(layer is one for one in part.modules())
    ]
    return holders[-1].config


@torch.no_grad()
def _runs(
    model: nn.Module, inputs: Callable[[nn.Module], Iterator[dict[str, Any]]], errors: list[str]
) -> list[list[Call]]:
    """What ``observed`` saw in each of some runs on inputs of the same shape."""
    for kind in itertools.count():
        if time.process_time() > 2 * SECONDS:
            return []
        runs = []
        for seed in range(FIT + 1):
            torch.manual_seed(seed)
            given = next(itertools.islice(inputs(model), kind, None), None)
            if given is None:
                return []
            if seed < FIT and not given.get("attention_mask", torch.ones(1)).is_floating_point():
                given["attention_mask"] = torch.ones_like(given["attention_mask"])
            try:
                with observed(model) as calls:
                    model(**given)
            except Exception as error:
                errors.append(f"run: {type(model).__name__} {list(given)} {type(error).__name__}: {error}")
                break
            runs.append(calls)
        else:
            return runs
    return []


def _tried(calls: Sequence[Call], model: nn.Module) -> dict[str, Any] | None:
    """A row: the result, the difference or reason, the features; ``None`` if the input is always the same."""
    first = torch.cat([next(iter(call.inputs.values())).float() for call in calls])
    if (first - first[:1]).abs().max() < 1e-6:  # learned queries
        return None
    try:
        made = rebuild(calls[:-1])
        difference, largest = made.difference(calls[-1])
    except NotCovered as why:
        name = type(calls[0].module).__name__
        router = str(why) in ("other scores", "several softmaxes") and "tt" not in name
        if router or str(why) == "the same in each call":  # learned queries that attend to each other
            return None
        told = "deformable" if "eformable" in name else str(why)
        return _told(calls[0], model) | {"result": "not covered", "reason": told}
    except Exception as error:
        return _told(calls[0], model) | {
            "result": "not covered",
            "reason": "error",
            "error": repr(error)[:200],
        }
    compared = "alone" if calls[0].alone else "output" if made.out is None else "projection"
    row = (
        _told(calls[0], model, made.features["mask"])
        | made.features
        | {"difference": difference, "largest": largest, "compared": compared}
    )
    if not largest > 1e-3:
        return row | {"result": "not covered", "reason": "output of zeros"}
    return row | {"result": "equal" if difference <= EQUAL else "differs", "reason": ""}


def _told(call: Call, model: nn.Module, mask: str = "") -> dict[str, Any]:
    """What the configuration says, and what can be seen without a rebuild."""
    config = getattr(call.module, "config", None) or _config(model, call.module)
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get(getattr(call.module, "layer_type", None), rope)
    masks = [x for name, x in call.inputs.items() if "mask" in name and x.ndim == 4 and x.shape[2] > 1]
    causal = any(
        x[0, 0, 0, -1] < x[0, 0, -1, -1] or x[0, 0, 0, -1] < x[0, 0, 0, 0] for x in map(Tensor.float, masks)
    )
    cross = "Cross" in type(call.module).__name__ or any(
        "encoder_hidden" in n or "key_value" in n for n in call.inputs
    )
    return {
        "kind": kind(config, mask or ("causal" if causal else ""), cross),
        "scaling": rope.get("rope_type"),
    }


def _worst(tries: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all layers of a class: the first that is not equal, or, if all are, one with positions.

    Of several, the first of the widest. A difference is rounding, and another on each processor, so it does
    not choose the layer.
    """
    order = ["not covered", "differs", "equal"]
    worst = min(
        tries,
        key=lambda row: (order.index(row["result"]), not row.get("positions"), -(row.get("d_k") or 0)),
    )
    windows = {row["window"] for row in tries if row.get("window")}
    masks = sorted({row["mask"] for row in tries if row.get("mask")})
    ran = [row for row in tries if "positions" in row]
    positions = sorted({row["positions"] or "none" for row in ran})
    differences = [
        row["difference"] for row in tries if row["result"] == worst["result"] and "difference" in row
    ]
    return worst | {
        **({"difference": max(differences)} if differences else {}),
        "layers": len(tries),
        **({"temperature": any(row.get("temperature") for row in ran)} if ran else {}),
        "all_positions": " + ".join(positions),
        "masks": " + ".join(masks),
        "windows": " + ".join(map(str, windows)),
    }


def _without_softmax(name: str) -> str:
    """What a module does that has run without a softmax of its own."""
    kinds = {
        "Delta|KDA|GatedDelta": "delta rule",
        "Mamba|SSM|Mixer": "state space",
        "Linear|Lightning": "linear attention",
        "Deformable|Deform": "deformable",
    }
    return next((kind for pattern, kind in kinds.items() if re.search(pattern, name)), "holds another")


# What is named after attention, but is none.
PARTS = r"(PoolingHead|Output|Loss|Structure|NoAttention|Block|Layer|Merger|Map)$"


def _why(errors: list[str]) -> str:
    if any("requires" in e and ("library" in e or "backend" in e or "install" in e) for e in errors):
        return "needs a package"
    return (
        "does not build" if errors and all(error.startswith("build") for error in errors) else "not reached"
    )
