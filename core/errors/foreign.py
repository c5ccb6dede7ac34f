"""What to do about tensors where arrays are expected; imports no framework."""

from __future__ import annotations

_WAYS_OUT = {
    "torch": (
        "a PyTorch tensor is an argument of tracebridge.torch.wrap(function), or becomes an Array "
        "by tracebridge.torch.from_torch(x); a tensor that a traced function uses, pass it as an "
        "argument: the program would keep its values of today"
    ),
    "tensorflow": (
        "a TensorFlow tensor is an argument of tracebridge.tf.to_tf(function), or becomes an Array "
        "by tracebridge.numpy.asarray(x); a tensor or variable that a traced function uses, pass "
        "it as an argument: the program would keep its values of today, without derivatives"
    ),
}


def framework_of(cls: type) -> str:
    """Which framework a class belongs to, "" for none."""
    for base in cls.__mro__:
        package = base.__module__.partition(".")[0]
        if package in _WAYS_OUT:
            return package
        if package == "keras":
            return "tensorflow"
    return ""


def way_out_of(x: object, otherwise: str = "") -> str:
    """What to do about ``x``, which is no array: ``otherwise`` unless it is a tensor."""
    return _WAYS_OUT.get(framework_of(type(x)), otherwise)
