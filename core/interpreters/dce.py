"""Dead code elimination on Jaxprs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def dce_jaxpr(
    jaxpr: Jaxpr, used_out: tuple[bool, ...], keep_in: bool = False, *, keep_effects: bool = True
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """``jaxpr`` reduced to the results ``used_out``, and which inputs it still needs.

    Inputs that are not needed are dropped unless ``keep_in``. Equations with effects are needed
    unless ``keep_effects`` is off, also inside of loops and branches, for programs that repeat
    what another one does. Higher-order primitives with a method ``dce(used_outs, application)``
    shrink their own Jaxprs.
    """
    key = ("dce", used_out, keep_in, keep_effects)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = _dce(jaxpr, used_out, keep_in, keep_effects)
    return found


def wants_dce(jaxpr: Jaxpr) -> bool:
    """Whether a primitive is inside, at any depth, that says ``wants_dce``.

    Such programs are reduced before they are lowered; for others the compiler does as well.
    """
    found = jaxpr.cache.get("wants_dce")
    if found is None:
        found = any([app.multiple and app_wants_dce(app) for app, _ in jaxpr.equations])
        jaxpr.cache["wants_dce"] = found
    return found


def app_wants_dce(app: Application) -> bool:
    """Whether an equation says ``wants_dce``, or one inside of it."""
    if app.primitive.wants_dce:
        return True
    return any([wants_dce(jaxpr) for jaxpr in jaxprs_in_params(app.params)])


def _dce(
    jaxpr: Jaxpr, used_out: tuple[bool, ...], keep_in: bool, keep_effects: bool
) -> tuple[Jaxpr, tuple[bool, ...]]:
    fixed = jaxpr.n_in + len(jaxpr.consts)
    live = [False] * (fixed + sum([len(app.outs) for app, _ in jaxpr.equations]))
    for variable, used in zip(jaxpr.outs, used_out, strict=True):
        if used:
            live[variable] = True
    kept: list[tuple[Any, tuple[int, ...], list[int], int]] = []
    end = len(live)
    for k in range(len(jaxpr.equations) - 1, -1, -1):
        app, idx = jaxpr.equations[k]
        n_out = len(app.outs)
        start = end - n_out
        outs = list(range(start, end))
        used = tuple(live[start:end])
        end = start
        if not any(used) and not (app.effects and keep_effects):
            continue
        if app.multiple and (not all(used) or app_wants_dce(app)):
            app, keep_args, keep_outs = app.primitive.dce(used, app)
            idx = tuple([i for i, keep in zip(idx, keep_args, strict=True) if keep])
            outs = [o for o, keep in zip(outs, keep_outs, strict=True) if keep]
        if app.effects and not keep_effects:
            app = _without_effects(app)
        for i in idx:
            live[i] = True
        kept.append((app, idx, outs, k))
    kept.reverse()
    used_in = tuple(live[: jaxpr.n_in])
    kept_in = [keep_in or u for u in used_in]
    return _renumber(jaxpr, kept, kept_in, live, used_out), used_in


def _without_effects(app: Application) -> Application:
    """An equation whose Jaxprs have no effects but those that their results need."""

    def quiet(value: Any) -> Any:
        if type(value) is Jaxpr:
            return dce_jaxpr(value, (True,) * len(value.outs), True, keep_effects=False)[0]
        if type(value) is ClosedJaxpr:
            return ClosedJaxpr(quiet(value.jaxpr))
        return tuple([quiet(v) for v in value]) if type(value) is tuple else value

    if not jaxprs_in_params(app.params):
        return app
    params = {name: quiet(value) for name, value in app.params.items()}
    return app.primitive.application(app.avals, params)


def _renumber(
    jaxpr: Jaxpr,
    kept: list[tuple[Any, tuple[int, ...], list[int], int]],
    kept_in: list[bool],
    live: list[bool],
    used_out: tuple[bool, ...],
) -> Jaxpr:
    """A Jaxpr of the kept equations with variables numbered anew."""
    n_in = jaxpr.n_in
    table: dict[int, int] = {}
    for i, keep in enumerate(kept_in):
        if keep:
            table[i] = len(table)
    consts = []
    for i, c in enumerate(jaxpr.consts):
        if live[n_in + i]:
            table[n_in + i] = len(table)
            consts.append(c)
    equations = []
    position = len(table)
    for app, idx, outs, _ in kept:
        equations.append((app, tuple([table[i] for i in idx])))
        for o in outs:
            table[o] = position
            position += 1
    return Jaxpr(
        [a for a, keep in zip(jaxpr.in_avals, kept_in, strict=True) if keep],
        consts,
        equations,
        [table[s] for s, u in zip(jaxpr.outs, used_out, strict=True) if u],
        [a for a, u in zip(jaxpr.out_avals, used_out, strict=True) if u],
        [jaxpr.sources[k] for *_, k in kept] if jaxpr.sources else None,
        jaxpr.debug,
    )
