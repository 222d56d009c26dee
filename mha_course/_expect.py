"""What only the course expects of an argument; ``mha_lab._expect`` has the rest."""

from mha_lab._expect import fail


def instance(name: str, value: object, kind: type) -> None:
    """``value`` is a ``kind``."""
    if not isinstance(value, kind):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        fail(TypeError, name, f"a {kind.__name__}", got)
