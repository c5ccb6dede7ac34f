"""The memories of results: where operations of a program put them, device_put above all.

Memories are no part of types. An operation that names a memory decides for its result, and for
what is computed from it, up to the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import applications
from tracebridge.core.runtime.arrays.placement import Wishes, wishes_inside
from tracebridge.core.runtime.backends.clients import default_placement
from tracebridge.core.sharding.equivalent import stand_in
from tracebridge.core.sharding.sharding import default_memory_kind
from tracebridge.core.sharding.single_device import SingleDeviceSharding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.sharding.named import NamedSharding

Kinds = tuple[str | None, ...]


def wishes_of_results(jaxpr: Jaxpr, signatures: Sequence[Any]) -> Wishes | None:
    """What the operations of a program say about a mesh, and about memories of its results."""
    found = wishes_inside(jaxpr)
    if "names memories" not in jaxpr.cache:
        apps = applications(jaxpr)
        jaxpr.cache["names memories"] = any(a.primitive.result_memory(a.params) for a in apps)
    device = _only_device(found, signatures) if jaxpr.cache["names memories"] else None
    if device is None:
        return found
    usual = default_memory_kind(device)
    given = [_other_memory(s, usual) for s in signatures]
    # Numbers that the function closes over come first.
    given = [*[None] * (jaxpr.n_in - len(given)), *given]
    kinds = _kinds(jaxpr, tuple(given))
    if not any(kind not in {None, usual} for kind in (*given, *kinds)):
        return found

    def place(kind: str | None) -> NamedSharding:
        return stand_in(SingleDeviceSharding(device, memory_kind=kind))

    return Wishes(
        place(None).mesh,
        tuple([place(_other_memory(s, usual)) for s in signatures]),
        tuple([None if kind is None else place(kind) for kind in kinds]),
    )


def _other_memory(signature: Any, usual: str) -> str | None:
    """The memory of an argument that is in another one than usual."""
    kind = signature.sharding.memory_kind if signature.committed else usual
    return None if kind == usual else kind


def _only_device(wishes: Wishes | None, signatures: Sequence[Any]) -> Any:
    """The device of a program that runs on one; None if it runs on several."""
    if wishes is not None:
        return None
    for sig in signatures:
        if sig.committed:
            single = type(sig.sharding) is SingleDeviceSharding
            return sig.sharding.device if single else None
    placement = default_placement()
    return placement.device if type(placement) is SingleDeviceSharding else None


def _kinds(jaxpr: Jaxpr, given: Kinds) -> Kinds:
    env: list[str | None] = [*given, *[None] * len(jaxpr.consts)]
    for app, idx in jaxpr.equations:
        env.extend(_step(app, tuple([env[i] for i in idx])))
    return tuple([env[i] for i in jaxpr.outs])


def _step(app: Application, given: Kinds) -> Kinds:
    """The memories of the results of one equation, those of its operands given."""
    own = app.primitive.result_memory(app.params)
    inner = app.params.get("jaxpr") if app.primitive.inlinable else None
    if own is None and isinstance(inner, Jaxpr):
        return _kinds(inner, given)
    kind = next(filter(None, given), None) if own is None else own
    return (kind,) * len(app.outs)
