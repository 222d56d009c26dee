"""What only the course expects of an argument; ``mha_lab._expect`` has the rest."""

from torch import nn

from mha_lab._expect import fail


def own_weight(name: str, projection: nn.Module) -> None:
    """``projection`` is a plain ``Linear`` whose weight is a parameter: what is written there is used."""
    if type(projection) is not nn.Linear or not isinstance(projection.weight, nn.Parameter):
        kind = type(projection).__name__
        hint = "Merge or remove adapters, parametrizations and quantization first."
        fail(TypeError, name, "a torch.nn.Linear whose weight is a parameter", kind, hint)


def instance(name: str, value: object, kind: type) -> None:
    """``value`` is a ``kind``."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        fail(TypeError, name, f"a {kind.__name__}", got)
