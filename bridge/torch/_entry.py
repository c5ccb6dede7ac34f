"""The shortest path of a call: positional tensors of the CPU, a known combination of shapes.

The functions are generated for each number of arguments: loops over three tensors would cost as
much as the guards themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from tracebridge.core.config.scopes import state
from tracebridge.core.util.caching import BoundedCache
from tracebridge.torch import _eager

MAX_ARGUMENTS = 100
_FACTORIES: BoundedCache[Any] = BoundedCache("torch entries", 128)


def make_entry(
    n: int, calls: dict[Any, Any], general: Callable[[tuple[Any, ...], dict[str, Any]], Any]
) -> Callable[..., Any]:
    """``entry(*args)`` that finds its executable in ``calls``, else does ``general(args, {})``.

    ``calls`` maps (dtype, shape, dtype, shape, ...) to the compiled family and the function that
    makes the tree of results of their list (None: there is one result, and no tree).
    """
    if not 0 < n <= MAX_ARGUMENTS:
        return lambda *args: general(args, {})
    factory = _FACTORIES.get(n)
    if factory is None:
        factory = _compile_factory(n)
        _FACTORIES.set(n, factory)
    return factory(calls, general)


def _compile_factory(n: int) -> Any:
    names = [f"a{i}" for i in range(n)]
    tensors = " and ".join([f"type({a}) in EXACT" for a in names])
    key = ", ".join([f"{a}.dtype, {a}.shape" for a in names])
    plain = " and ".join(
        [f"{a}.is_contiguous() and keys_of({a}).raw_repr() in PLAIN_KEYS" for a in names]
    )
    wants = " or ".join([f"{a}.requires_grad" for a in names])
    arguments = ", ".join(names)
    mask = ", ".join([f"{a}.requires_grad" for a in names])
    source = f"""
def factory(calls, general):
    def entry({arguments}):
        if {tensors}:
            found = calls.get(({key},))
            if (
                found is not None and {plain}
                and not transforms_active() and not modes_active()
                and forward_ad._current_level < 0 and state() is None
            ):
                compiled, unflatten = found
                if grad_enabled() and ({wants}):
                    outs = apply_compiled(compiled, ({mask},), ({arguments},))
                else:
                    outs = compiled.run(({arguments},))
                return outs[0] if unflatten is None else unflatten(outs)
        return general(({arguments},), {{}})
    return entry
"""
    scope: dict[str, Any] = {
        "EXACT": _eager.EXACT,
        "PLAIN_KEYS": _eager.PLAIN_KEYS,
        "keys_of": _eager.keys_of,
        "transforms_active": _eager.transforms_active,
        "modes_active": _eager.modes_active,
        "forward_ad": forward_ad,
        "grad_enabled": torch.is_grad_enabled,
        "state": state,
        "apply_compiled": _eager.apply_node,
    }
    exec(source, scope)  # noqa: S102 (the source is made of an integer)
    return scope["factory"]
