"""Operations that are objects: types, parameters and all rules in one class of the user."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

from tracebridge.core.compat.ad import Zero
from tracebridge.core.compat.hijax.accumulators import GradAccum, ValAccum
from tracebridge.core.compat.hijax.call import apply_operation, flat_like
from tracebridge.core.errors.transform_errors import AxisSpecError, MissingRuleError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.staged_rules import SpmdAxis
from tracebridge.core.ir.effects import Effect
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.lax.reduce.reductions import reduce_sum
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.experimental.hijax")
class VJPHiPrimitive:
    """Base of operations that are objects with rules for trees of values.

    ``__init__`` of a subclass sets ``in_avals``, a tuple with the tree of types of each argument,
    ``out_aval``, the tree of types of the result, and ``params``, a dict whose entries become
    attributes, and then calls this one. Calling the object applies the operation. Rules:

    * ``expand(*args)``: the result, by other operations;
    * ``vjp_fwd(nonzero, *args)`` gives ``(result, residuals)``, and ``vjp_bwd_retval(residuals,
      cotangent)`` a tuple with one cotangent per argument; or ``vjp_bwd(residuals, cotangent,
      *accums)`` puts each into an accumulator: ``accum.accum(cotangent)``;
    * ``jvp(primals, tangents)`` gives the result and its tangent; or ``lin(nonzero, *args)``
      gives ``(result, residuals)`` and ``linearized(residuals, *tangents)`` the tangent;
    * ``transpose(cotangent, *args)`` of linear operations, with an accumulator for each linear
      argument;
    * ``batch_dim_rule(axis, dims)`` gives the mapped axes of the result for those of the
      arguments, and the operation is mapped element by element; or ``batch(axis, args, dims)``
      gives the result of a batch as well.

    Zeros among tangents and cotangents are ``Zero``. Without ``vjp_fwd`` the other rules are
    transposed.

    Raises:
        AttributeError: ``in_avals``, ``out_aval`` or ``params`` is not set, or both backward rules
            are defined.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.hijax import VJPHiPrimitive
    >>> class Power(VJPHiPrimitive):
    ...     def __init__(self, aval, exponent):
    ...         self.in_avals, self.out_aval = (aval,), aval
    ...         self.params = {"exponent": exponent}
    ...         super().__init__()
    ...     def expand(self, x):
    ...         return x**self.exponent
    ...     def vjp_fwd(self, nonzero, x):
    ...         return self(x), x
    ...     def vjp_bwd_retval(self, x, cotangent):
    ...         return (cotangent * self.exponent * x ** (self.exponent - 1),)
    ...     def batch_dim_rule(self, axis, dims):
    ...         return dims[0]
    >>> def cube(x):
    ...     return Power(tb.typeof(x), 3)(x)
    >>> print(cube(2.0), tb.jit(tb.grad(cube))(2.0), tb.vmap(cube)(tb.numpy.arange(3.0)))
    8.0 12.0 [0. 1. 8.]
    """

    in_avals: tuple[Any, ...]
    out_aval: Any
    params: dict[str, Hashable]
    effects: frozenset[Effect] = frozenset()

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"{type(self).__name__}: __init__ sets no attribute {name!r}")
        kind, base = type(self), VJPHiPrimitive
        both = kind.vjp_bwd is not base.vjp_bwd and (kind.vjp_bwd_retval is not base.vjp_bwd_retval)
        if both:
            raise AttributeError(
                f"{kind.__name__} defines both `vjp_bwd` and `vjp_bwd_retval`; one says it all"
            )
        self.in_avals_flat, self.in_tree = flatten(self.in_avals)
        self.out_avals_flat, self.out_tree = flatten(self.out_aval)
        self.__dict__.update(self.params)
        self.check(*self.in_avals)

    def __call__(self, *args: Any) -> Any:
        """Apply the operation to values of the types ``in_avals``."""
        flat = flat_like(self.in_tree, args, "an argument", self)
        return self.out_tree.unflatten(apply_operation(self, flat))

    def check(self, *arg_tys: object) -> None:
        """Raise if arguments of these types are none for it; nothing by default."""

    def defines(self, name: str) -> bool:
        """Whether the class defines the rule ``name`` itself."""
        return getattr(type(self), name) is not getattr(VJPHiPrimitive, name)

    def _missing(self, purpose: str, names: str) -> MissingRuleError:
        kind = type(self).__name__
        message = f"{kind}: for {purpose} the class has to define {names}"
        return MissingRuleError(kind, purpose, message=message)

    def expand(self, *args: Any) -> Any:
        """The result, by other operations."""
        raise self._missing("evaluation", "`expand`")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        """Result and residuals; ``nzs_in`` says which arguments are differentiated."""
        raise self._missing("grad", "`vjp_fwd`")

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> None:
        """Put cotangents into accumulators; by default those of ``vjp_bwd_retval``."""
        found = self.vjp_bwd_retval(res, outgrad)
        if isinstance(found, list):
            found = tuple(found)
        accums = self.in_tree.flatten_up_to(arg_accums)
        cotangents = flat_like(self.in_tree, found, "the result of vjp_bwd_retval", self)
        for accum, cotangent in zip(accums, cotangents, strict=True):
            if isinstance(accum, GradAccum):
                accum.accum(cotangent)

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        """A tuple with one cotangent per argument."""
        raise self._missing("grad", "`vjp_bwd` or `vjp_bwd_retval`")

    def jvp(self, primals: Any, tangents: Any) -> Any:
        """The result and its tangent."""
        raise self._missing("jvp", "`jvp`")

    def lin(self, nzs_in: Any, *primals: Any) -> Any:
        """Result and residuals of ``linearized``."""
        raise self._missing("linearize", "`lin` and `linearized`")

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        """The tangent of the result."""
        raise self._missing("linearize", "`lin` and `linearized`")

    def transpose(self, out_ct: Any, *maybe_accums: Any) -> None:
        """Put cotangents of linear arguments into the accumulators in their places."""
        raise self._missing("transposition", "`transpose`")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> tuple[Any, Any]:
        """The result of a batch and where its mapped axes are."""
        out_dim = self.batch_dim_rule(axis_data, dims)
        return VmapOf(self, axis_data, dims, out_dim)(*args), out_dim

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        """Where the mapped axes of the result are."""
        raise self._missing("vmap", "`batch` or `batch_dim_rule`")

    def dce(self, used_outs: Any) -> tuple[Any, Any, Any]:
        """Which arguments are needed for some results, which it gives, the operation that does."""
        used = any(self.out_tree.flatten_up_to(used_outs))
        return (True, True, self) if used else (False, False, None)

    def remat(self, _policy: Any, *args: Any) -> tuple[Any, Any]:
        """The result, and what computes it again."""
        return self(*args), self

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.params.items()), self.effects))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VJPHiPrimitive)
            and type(self) is type(other)
            and self.params == other.params
            and self.effects == other.effects
        )


def _with_axis(avals: Sequence[Any], size: Any, dims: Sequence[Any]) -> list[Any]:
    pairs = zip(avals, dims, strict=True)
    return [a if d is None else a.inc_rank(size, d) for a, d in pairs]


@final
class _Residuals:
    """Residuals of all elements: a tree with the structure of one, and the mapped axes."""

    __slots__ = ("leaves", "static")

    def __init__(self, leaves: Sequence[Any], static: tuple[Any, tuple[Any, ...]]) -> None:
        self.leaves = list(leaves)
        self.static = static


register_pytree_node(
    _Residuals, lambda x: (x.leaves, x.static), lambda static, leaves: _Residuals(leaves, static)
)


@final
class VmapOf(VJPHiPrimitive):
    """An operation for each element of a batch."""

    prim: Any
    axis_data: Any
    in_dims: Any
    out_dim: Any

    def __init__(self, prim: Any, axis_data: Any, in_dims: Any, out_dim: Any) -> None:
        self.flat_in = prim.in_tree.flatten_up_to(in_dims)
        self.flat_out = _broadcast(prim.out_tree, out_dim)
        size = axis_data.size
        self.in_avals = prim.in_tree.unflatten(_with_axis(prim.in_avals_flat, size, self.flat_in))
        outs = _with_axis(prim.out_avals_flat, size, self.flat_out)
        self.out_aval = prim.out_tree.unflatten(outs)
        self.params = {
            "prim": prim,
            "axis_data": axis_data,
            "in_dims": prim.in_tree.unflatten(self.flat_in),
            "out_dim": prim.out_tree.unflatten(self.flat_out),
        }
        super().__init__()

    def defines(self, name: str) -> bool:
        """Whether the operation of the elements has the rule, or what does its work."""
        if name == "jvp":
            return self.prim.defines("jvp") or self.prim.defines("lin")
        return name != "lin" and self.prim.defines(name)

    def _map(self, fun: Any, args: Sequence[Any], dims: Sequence[Any]) -> tuple[Any, Any]:
        """Flat results of a flat function for each element, and their mapped axes."""
        data = self.axis_data
        axis = data.name if not data.spmd_name else SpmdAxis(data.name, data.spmd_name)
        return batch_flat(fun, [as_value(a) for a in args], dims, data.size, axis)

    def _placed(self, outs: Sequence[Any], dims: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
        size = self.axis_data.size
        return [_place(o, d, w, size) for o, d, w in zip(outs, dims, wanted, strict=True)]

    def expand(self, *args: Any) -> Any:
        prim = self.prim

        def one(*flat: Any) -> list[Any]:
            out = prim.expand(*prim.in_tree.unflatten(flat))
            return [as_value(o) for o in prim.out_tree.flatten_up_to(out)]

        flat = self.in_tree.flatten_up_to(args)
        outs, dims = self._map(one, flat, self.flat_in)
        return self.out_tree.unflatten(self._placed(outs, dims, self.flat_out))

    def jvp(self, primals: Any, tangents: Any) -> Any:
        prim = self.prim
        flat = prim.in_tree.flatten_up_to(primals)
        dots = prim.in_tree.flatten_up_to(tangents)
        given = [i for i, t in enumerate(dots) if type(t) is not Zero]
        nonzero: list[bool] = []

        def one(*xs: Any) -> list[Any]:
            zeros: list[Any] = [Zero(a.to_tangent_aval()) for a in prim.in_avals_flat]
            for i, x in zip(given, xs[len(flat) :], strict=True):
                zeros[i] = x
            unflatten = prim.in_tree.unflatten
            out, dot = _forward_of(prim, unflatten(xs[: len(flat)]), unflatten(zeros))
            found = prim.out_tree.flatten_up_to(dot)
            nonzero[:] = [type(t) is not Zero for t in found]
            tangents_of = [t for t, nz in zip(found, nonzero, strict=True) if nz]
            return [as_value(o) for o in (*prim.out_tree.flatten_up_to(out), *tangents_of)]

        dims = [*self.flat_in, *[self.flat_in[i] for i in given]]
        outs, out_dims = self._map(one, [*flat, *[dots[i] for i in given]], dims)
        wanted = [*self.flat_out, *[d for d, nz in zip(self.flat_out, nonzero, strict=True) if nz]]
        placed = self._placed(outs, out_dims, wanted)
        n = len(self.flat_out)
        rest = iter(placed[n:])
        pairs = zip(self.out_avals_flat, nonzero, strict=True)
        found = [next(rest) if nz else Zero(a.to_tangent_aval()) for a, nz in pairs]
        return self.out_tree.unflatten(placed[:n]), self.out_tree.unflatten(found)

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> Any:
        prim = self.prim
        seen: list[Any] = []

        def one(*flat: Any) -> list[Any]:
            out, residuals, *more = prim.vjp_fwd(nzs_in, *prim.in_tree.unflatten(flat))
            leaves, tree = flatten(residuals)
            seen[:] = [tree, more]
            return [as_value(o) for o in (*prim.out_tree.flatten_up_to(out), *leaves)]

        outs, dims = self._map(one, self.in_tree.flatten_up_to(args), self.flat_in)
        n = len(self.flat_out)
        placed = self._placed(outs[:n], dims[:n], self.flat_out)
        tree, more = seen
        residuals = _Residuals(outs[n:], (tree, tuple(dims[n:])))
        return (self.out_tree.unflatten(placed), residuals, *more)

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        prim = self.prim
        tree, res_dims = res.static
        res = res.leaves
        cts = self.out_tree.flatten_up_to(outgrad)
        given = [i for i, ct in enumerate(cts) if type(ct) is not Zero]
        nonzero: list[bool] = []

        def one(*xs: Any) -> list[Any]:
            zeros: list[Any] = [Zero(a.to_ct_aval()) for a in prim.out_avals_flat]
            for i, x in zip(given, xs[len(res) :], strict=True):
                zeros[i] = x
            found = _backward_of(prim, tree.unflatten(xs[: len(res)]), zeros)
            nonzero[:] = [f is not None and type(f) is not Zero for f in found]
            return [as_value(f) for f, nz in zip(found, nonzero, strict=True) if nz]

        dims = [*res_dims, *[self.flat_out[i] for i in given]]
        outs, out_dims = self._map(one, [*res, *[cts[i] for i in given]], dims)
        pairs = iter(zip(outs, out_dims, strict=True))
        found = [
            _sum_or_place(*next(pairs), d, self.axis_data.size) if nz else None
            for d, nz in zip(self.flat_in, nonzero, strict=True)
        ]
        return self.in_tree.unflatten(found)

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        inner = self.prim.in_tree
        flat = inner.flatten_up_to(dims)
        fixed = [
            d if d is None or own is None else d - (own < d)
            for d, own in zip(flat, self.flat_in, strict=True)
        ]
        out = _broadcast(self.out_tree, self.prim.batch_dim_rule(axis_data, inner.unflatten(fixed)))
        return self.out_tree.unflatten(
            [
                d if d is None or own is None else d + (own <= d)
                for d, own in zip(out, self.flat_out, strict=True)
            ]
        )


def _broadcast(tree: Any, dims: Any) -> list[Any]:
    """One axis for each leaf: of a tree of axes, or the same for all."""
    if dims is None or isinstance(dims, int):
        return [dims] * tree.num_leaves
    return tree.flatten_up_to(dims)


def _forward_of(prim: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Result and tangent by whichever rule for forward mode there is."""
    if prim.defines("jvp"):
        return prim.jvp(primals, tangents)
    nonzero = [type(t) is not Zero for t in prim.in_tree.flatten_up_to(tangents)]
    out, residuals, *_ = prim.lin(prim.in_tree.unflatten(nonzero), *primals)
    return out, prim.linearized(residuals, *tangents)


def _backward_of(prim: Any, residuals: Any, cts: list[Any]) -> list[Any]:
    """Flat cotangents of all arguments, by whichever backward rule there is."""
    accums = [ValAccum(a.to_ct_aval()) for a in prim.in_avals_flat]
    prim.vjp_bwd(residuals, prim.out_tree.unflatten(cts), *prim.in_tree.unflatten(accums))
    return [a.freeze() for a in accums]


def _place(out: Any, dim: Any, wanted: Any, size: Any) -> Any:
    """A batch with its axis where it is wanted."""
    if dim == wanted:
        return out
    if wanted is None or not isinstance(wanted, int):
        raise AxisSpecError(f"vmap: a result is mapped along {dim}, but declared as {wanted}")
    if dim is None:
        return broadcast_batch(out, size, wanted)
    return move_batch_axis(out, dim, wanted)


def _sum_or_place(out: Any, dim: Any, wanted: Any, size: Any) -> Any:
    """The cotangent of an argument: summed over the batch if the argument is shared by it."""
    if wanted is None and dim is not None:
        return reduce_sum(out, (dim,))
    if wanted is None:
        return out * size
    return _place(out, dim, wanted, size)
