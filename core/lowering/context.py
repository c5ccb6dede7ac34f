"""The lowering context: what ``Primitive.lower`` may use, and the loop over equations."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.values import option, tracing_key
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.ir.eager_slot import EAGER
from tracebridge.core.ir.effects import Effect, Effects, no_effects, ordered_effects
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.values import Literal
from tracebridge.core.lowering.attributes import blocks_around, has_attributes
from tracebridge.core.lowering.blocks import on_blocks
from tracebridge.core.lowering.functions import emit_function, forget_copies, shared_function
from tracebridge.core.lowering.locations import Locations
from tracebridge.core.lowering.recipes import recipe_of
from tracebridge.core.lowering.tokens import case, put, take, token_type
from tracebridge.core.mlir.builders import Builder
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.sharding.mesh import Mesh

_STAGED: BoundedCache[Jaxpr] = BoundedCache("functions of lowering rules", 512)
_FLAG = ShapedArray((), np.bool_)
_INDEX = ShapedArray((), np.int32)

# (primitive, platform) -> function with the signature of Primitive.lower
_PLATFORM_RULES: dict[tuple[Any, str], Callable[..., Any]] = {}
# Those that compute something else than the primitive's own rule, which others only make faster.
_REPLACED: set[Any] = set()
# Those that only make programs faster on their platform: the option platform_rules turns them off.
_OPTIONAL: set[tuple[Any, str]] = set()

PLATFORM_INDEX = "platform index"
"""What modules for several platforms call the number of theirs; no dimension has such a name."""


def register_platform_lowering(
    primitive: Primitive,
    platform: str,
    rule: Callable[..., object],
    *,
    replaces: bool = False,
    optional: bool = False,
) -> None:
    """Lower ``primitive`` by ``rule(ctx, *operands, **params)`` on ``platform`` ("cuda", ...).

    ``replaces``: modules for several platforms need the rule too. ``optional``: the rule only makes
    programs faster, so the option ``platform_rules`` turns it off.
    """
    key = primitive, platform
    if optional:
        # Rules for speed come with the first program; one of a user may be there before.
        if key in _PLATFORM_RULES and key not in _OPTIONAL:
            return
        _OPTIONAL.add(key)
    else:
        _OPTIONAL.discard(key)
    _PLATFORM_RULES[key] = rule
    forget_copies()
    if replaces:
        _REPLACED.add(primitive)


def _rules_in_force() -> dict[tuple[Any, str], Callable[..., Any]]:
    if option("platform_rules"):
        return _PLATFORM_RULES
    return {key: rule for key, rule in _PLATFORM_RULES.items() if key not in _OPTIONAL}


# platform -> function from a program to a faster form of it, which the same option turns off
_REWRITES: dict[str, Callable[[Jaxpr], Jaxpr]] = {}


def register_rewrites(platform: str, rewrite: Callable[[Jaxpr], Jaxpr]) -> None:
    """Lower what ``rewrite`` makes of programs on ``platform`` in their place."""
    _REWRITES[platform] = rewrite
    forget_copies()


@final
class LoweringContext(Builder):
    """Builder plus functions, constants of the program and the avals of the current equation."""

    __slots__ = (
        "_calls",
        "_functions",
        "_names",
        "attributes",
        "avals_in",
        "avals_out",
        "axis_env",
        "callbacks",
        "channels",
        "inspections",
        "keepalives",
        "locations",
        "manual",
        "merged",
        "mesh",
        "module",
        "n_replicas",
        "platform",
        "platforms",
        "rewrites",
        "rules",
        "tokens",
    )

    def __init__(self, module: Any, platform: str) -> None:
        super().__init__()
        self.module = module
        self.platform = platform
        # The platforms of a module for several: it is told the number of the one that it runs on.
        self.platforms: tuple[str, ...] = ()
        # Rules for single platforms, by primitive and platform.
        self.rules = _rules_in_force()
        # Rewrites of whole programs, by platform.
        self.rewrites = _REWRITES if option("platform_rules") else {}
        self.avals_in: tuple[ShapedArray, ...] = ()
        self.avals_out: tuple[ShapedArray, ...] = ()
        # Named axes whose elements are replicas of the program, with their sizes, outermost first.
        self.axis_env: tuple[tuple[Any, int], ...] = ()
        self.n_replicas = 1
        # The mesh that XLA splits the program over, if any.
        self.mesh: Mesh | None = None
        # Inside a part of it that is written for one device: the axes of the mesh by which it is
        # one. Then ``axis_env`` has all axes of the mesh.
        self.manual: tuple[Any, ...] = ()
        # How many operations between the partitions of such a program there are.
        self.channels = 0
        # Frontend attributes of all operations that are emitted (lowering/attributes.py).
        self.attributes: dict[str, str] = {}
        # Where operations come from, if the text of the module is to tell it.
        self.locations: Locations | None = None
        # Host functions that the program calls, in the order of their index.
        self.callbacks: list[Any] = []
        # Functions of the placement, called when the program is compiled for one.
        self.inspections: list[Any] = []
        # Objects that have to live as long as the program, such as functions that it calls.
        self.keepalives: list[Any] = []
        # Symbols of functions of other modules that are part of this one (lowering/embedding.py).
        self.merged: dict[Any, str] = {}
        # The tokens of ordered effects in the current function (lowering/tokens.py).
        self.tokens: dict[Effect, Any] = {}
        self._functions: dict[Any, Any] = {}
        # Ordered effects, result types and attributes of calls of them.
        self._calls: dict[Any, tuple[Sequence[Any], list[Any], dict[str, Any]]] = {}
        self._names: set[str] = set()

    @property
    def aval_out(self) -> ShapedArray:
        """The aval of the only result of the current equation."""
        return self.avals_out[0]

    @property
    def is_split(self) -> bool:
        """Whether XLA divides what is written here over several devices."""
        mesh = self.mesh
        return mesh is not None and mesh.size > 1 and len(self.manual) < len(mesh.axis_names)

    # Jaxprs --------------------------------------------------------------------------------------

    def inline_jaxpr(self, jaxpr: Jaxpr, operands: Sequence[Any], part: str = "") -> list[Any]:
        """Emit the equations of ``jaxpr`` here; gives its results.

        ``part``: which part of the current equation it is ("body"), for locations.
        """
        if part and self.locations is not None:
            with self.locations.part(part):
                return self.inline_jaxpr(jaxpr, operands)
        rewrite = self.rewrites.get(self.platform)
        if rewrite is not None and self.mesh is None and not has_attributes(jaxpr):
            jaxpr = rewrite(jaxpr)
        env: list[Any] = [*operands]
        for const in jaxpr.consts:
            env.append(const if type(const) is Literal else self._array_constant(const))
        blocks = blocks_around(self, jaxpr)
        if blocks is None:
            self._emit(jaxpr.equations, env)
        else:
            for equation, block in zip(jaxpr.equations, blocks, strict=True):
                with block:
                    self._emit((equation,), env)
        return [self.materialize(env[i]) for i in jaxpr.outs]

    def _emit(self, equations: Sequence[Any], env: list[Any]) -> None:
        """Emit equations; their results are appended to ``env``."""
        create = self.create
        for app, idx in equations:
            recipe = app.recipe
            if recipe is None:
                recipe = recipe_of(app)
            values = [env[i] for i in idx]
            if recipe is False or (app.primitive, self.platform) in self.rules:
                env.extend(self._lower_by_rule(app, values))
                continue
            if recipe.scalars:
                self._repeat_scalars(values, recipe)
            for k, v in enumerate(values):
                if type(v) is Literal:
                    values[k] = self.splat(v.value, v.aval)
            operation = create(
                recipe.name, results=recipe.types, operands=values, attributes=recipe.attributes
            )
            env.append(operation.results[0])

    def _repeat_scalars(self, values: list[Any], recipe: Any) -> None:
        """Literals become constants of the full shape, other scalars are broadcast."""
        shape = recipe.out.shape
        for k in recipe.scalars:
            v = values[k]
            if type(v) is Literal:
                values[k] = self.splat(v.value, v.aval.update(shape=shape))
            else:
                aval = recipe.avals[k].update(shape=shape)
                values[k] = self.broadcast_in_dim(v, aval, ())

    def materialize(self, value: object) -> Any:
        """An ``ir.Value``, also of a Literal."""
        return self.splat(value.value, value.aval) if type(value) is Literal else value

    def _lower_by_rule(self, app: Application, values: Sequence[object]) -> Sequence[Any]:
        outer = self.avals_in, self.avals_out
        self.avals_in = app.avals
        self.avals_out = app.outs
        lower = cast("Callable[..., Any]", app.primitive.lower)
        operands = [self.materialize(v) for v in values]
        if app.primitive.moves_elements and app.outs and is_extended(app.outs[0].dtype):
            stored_avals = [stored(a) for a in app.avals]
            out = self.lower_fun(partial(on_blocks, app), *operands, avals_in=stored_avals)
            self.avals_in, self.avals_out = outer
            return out
        if self.platforms and app.primitive in _REPLACED:
            rules = [self.rules.get((app.primitive, p), lower) for p in self.platforms]
            out = self.by_rules(rules, operands, app.params, multiple=app.multiple)
        else:
            rule = self.rules.get((app.primitive, self.platform), lower)
            out = rule(self, *operands, **app.params)
        self.avals_in, self.avals_out = outer
        return out if app.multiple else (out,)

    def by_rules(
        self,
        rules: Sequence[Callable[..., Any] | None],
        operands: Sequence[object],
        params: Params,
        *,
        multiple: bool,
    ) -> Any:
        """Lower the current equation by one rule for each of ``platforms``."""

        def emit(rule: Any) -> Sequence[Any]:
            out = rule(self, *operands, **params)
            return out if multiple else (out,)

        outs = self.by_platform(rules, emit, self.avals_out)
        return outs if multiple else outs[0]

    def by_platform(
        self,
        choices: Sequence[object],
        emit: Callable[[Any], Sequence[Any]],
        avals: Sequence[ShapedArray],
        effects: Effects = no_effects,
    ) -> list[Any]:
        """What ``emit(choice)`` gives for the choice of the platform that the program runs on.

        ``choices`` has one entry for each of ``platforms``.
        """
        distinct = list(dict.fromkeys(choices))
        if len(distinct) == 1:
            return list(emit(distinct[0]))
        number = self.dim(PLATFORM_INDEX)
        index = self.dim(0)
        for k, choice in enumerate(choices):
            if choice is not distinct[0] and choice != distinct[0]:
                here = self.compare(number, self.dim(k), _FLAG, "EQ", "SIGNED")
                which = self.dim(distinct.index(choice))
                index = self.op1("stablehlo.select", [here, which, index], _INDEX)
        return case(self, effects, index, avals, [partial(emit, c) for c in distinct])

    def call_jaxpr(self, jaxpr: Jaxpr, operands: Sequence[Any], name: str) -> list[Any]:
        """Emit ``jaxpr`` once per module as a private function and call it."""
        key = self._key_of(jaxpr)
        known = self._calls.get(key)
        if known is None:
            effects = ordered_effects(jaxpr.effects)
            types = [*[token_type() for _ in effects], *[tensor_type(a) for a in jaxpr.out_avals]]
            callee = mlir.ir.FlatSymbolRefAttr.get(self.function_of(jaxpr, name))
            known = self._calls[key] = effects, types, {"callee": callee}
        effects, types, attributes = known
        if effects or self._dims:
            dims = [v for _, v in self._dim_operands()]
            operands = [*dims, *take(self, effects), *operands]
        operation = self.create("func.call", types, operands, attributes)
        results = list(operation.results)
        if not effects:
            return results
        n = len(effects)
        put(self, effects, results[:n])
        return results[n:]

    def call_fun(
        self,
        key: Hashable,
        fun: Callable[..., Any],
        operands: Sequence[Any],
        avals: Sequence[ShapedArray],
        name: str,
    ) -> list[Any]:
        """Call ``fun`` (values -> a value), emitted once per module, key and kind of operand."""
        avals = [a.with_split(None) for a in avals]
        kinds = key, *avals
        jaxpr = _STAGED.get(kinds)
        if jaxpr is None:
            jaxpr = stage(lambda *xs: [fun(*xs)], [a.strong for a in avals], locate=False)
            _STAGED.set(kinds, jaxpr)
        function = self._key_of(jaxpr)
        if function not in self._functions:
            symbol = shared_function(self, jaxpr, name)
            if symbol is not None:
                self._functions[function] = symbol
        return self.call_jaxpr(jaxpr, operands, name)

    def function_of(self, jaxpr: Jaxpr, name: str) -> str:
        """The symbol of ``jaxpr`` as a private function, emitted once per module."""
        key = self._key_of(jaxpr)
        symbol = self._functions.get(key)
        if symbol is None:
            symbol = self._functions[key] = emit_function(self, jaxpr, name, self._dim_operands())
        return symbol

    def _key_of(self, jaxpr: Jaxpr) -> Hashable:
        """Collectives in a function depend on the axes; it may take positions along them."""
        if self.attributes:
            return jaxpr, self.axis_env, self.manual, tuple(sorted(self.attributes.items()))
        if not self.axis_env:
            return jaxpr
        return jaxpr, self.axis_env, self.manual, tuple(sorted(self.dims_by_name()))

    def _dim_operands(self) -> list[tuple[str, Any]]:
        """Names and values of the dimension variables that functions take as leading arguments."""
        return sorted(self.dims_by_name().items())

    def fill_function(
        self,
        function: Any,
        in_types: Sequence[object],
        jaxpr: Jaxpr,
        dims: Sequence[str] = (),
        end: str = "func.return",
    ) -> None:
        """Emit ``jaxpr`` as the body of a function of dimensions, tokens and its inputs.

        ``end`` is the operation that gives the results. Dimensions may be arrays of one element.
        """
        ir = mlir.ir
        places = [ir.Location.unknown()] * len(in_types)
        block = function.regions[0].blocks.append(*in_types, arg_locs=places)
        outer = self._constants, self._dims, self._const_values, self.tokens
        arguments = list(block.arguments)
        effects = ordered_effects(jaxpr.effects)
        n_dims, n_first = len(dims), len(dims) + len(effects)
        self.tokens = dict(zip(effects, arguments[n_dims:n_first], strict=True))
        self._constants = {}
        self._const_values = {}
        with ir.InsertionPoint(block):
            scalars = [self.reshape(v, _INDEX) if v.type.rank else v for v in arguments[:n_dims]]
            self._dims = dict(zip(dims, scalars, strict=True))
            with nullcontext() if self.locations is None else self.locations.part(None):
                outs = self.inline_jaxpr(jaxpr, arguments[n_first:])
            self.finish([*take(self, effects), *outs], end)
        self._constants, self._dims, self._const_values, self.tokens = outer

    def unique_name(self, name: str) -> str:
        """A symbol that no other function of the module has."""
        base = "".join([c if c.isalnum() or c in "_." else "_" for c in name]) or "f"
        candidate, n = base, 0
        while candidate in self._names:
            n += 1
            candidate = f"{base}_{n}"
        self._names.add(candidate)
        return candidate

    def lower_fun(
        self, fun: Callable[..., Any], *operands: Any, avals_in: Any = None, **params: Any
    ) -> list[Any]:
        """Emit ``fun`` (values -> a value or a sequence), traced at the avals of the equation."""
        avals = self.avals_in if avals_in is None else avals_in
        # What types say of splits is settled: inside XLA may split everything.
        jaxpr, hoisted = _staged(fun, tuple([a.with_split(None) for a in avals]), params)
        consts = [self._array_constant(h) for h in hoisted]
        return self.inline_jaxpr(jaxpr, [*consts, *operands])

    # array constants -----------------------------------------------------------------------------

    def bind_constant(self, array: object, value: object) -> None:
        """Say which argument of main holds an Array constant."""
        self._const_values[id(array)] = array, value

    def _array_constant(self, array: object) -> Any:
        # The array is kept: those of functions traced here have no other owner, and the number
        # of one that went away would be that of the next.
        found = self._const_values.get(id(array))
        if found is None:
            found = self._const_values[id(array)] = array, self.dense(to_numpy(array))
        return found[1]


def _staged(
    fun: Callable[..., Any], avals: tuple[ShapedArray, ...], params: Params
) -> tuple[Jaxpr, list[Any]]:
    """The program of a function of a rule, and the arrays that it takes first.

    Functions of modules are the same at each call, so their programs are remembered.
    """
    key: Hashable = None
    if isinstance(fun, FunctionType) and "<locals>" not in fun.__qualname__:
        # Their text keeps 1, 1.0 and True apart, and 0.0 and -0.0.
        key = fun, avals, tuple(params.items()), repr(params), tracing_key()
        try:
            known = _STAGED.get(key)
        except TypeError:  # a parameter without a hash
            key = known = None
        if known is not None:
            return known, []

    def flat(*args: object) -> list[Any]:
        out = fun(*args, **params)
        return list(out) if isinstance(out, list | tuple) else [out]

    hoisted: list[Any] = []
    jaxpr = stage(flat, avals, locate=False, hoisted=hoisted)
    if key is not None and not hoisted and not jaxpr.effects:
        _STAGED.set(key, jaxpr)
    return jaxpr, hoisted


def to_numpy(array: object) -> np.ndarray[Any, Any]:
    """The elements of an Array constant on the host."""
    return EAGER.trace.to_numpy(array)
