"""The pullback that ``vjp`` gives: a linear function, a pytree, and a place for residuals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge._api.args.tape_tree import TapeStructure, put_together, take_apart
from tracebridge._api.args.values import public, spread, tangent_or_zeros
from tracebridge._api.derivatives.jvp import tangent_values
from tracebridge._api.derivatives.pullback_places import DidntWant, DontWant, GradRef
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.control.refs.ref import Ref
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.linearize import Linearized
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.float0 import leaves_for
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.prefix import check_same_structure
from tracebridge.core.tree.registry import register_pytree_node_class
from tracebridge.core.tree.tree import PyTreeDef, flatten

Avals = tuple[tuple[ShapedArray, ...], tuple[ShapedArray, ...]]
Trees = tuple[PyTreeDef, PyTreeDef]


@final
class NotNeeded:
    """Stands in ``args_res`` for an array that is not needed; a pytree without leaves."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NotNeeded()"

    def tree_flatten(self) -> tuple[tuple[()], None]:
        """No leaves."""
        return (), None

    @classmethod
    def tree_unflatten(cls, structure: None, children: Sequence[Any]) -> NotNeeded:
        """Another one."""
        del structure, children
        return cls()


register_pytree_node_class(NotNeeded)


@final
class _Parts:
    """A pullback in parts: the tape without residuals, and these.

    ``places``: for each residual the leaf of the arguments that it is, or None. ``shown``: the
    residuals are in the lists ``args_res`` and ``opaque``, which users may change; else in
    ``residuals``.
    """

    __slots__ = ("args_res", "opaque", "places", "residuals", "shown", "structure")

    def __init__(
        self, structure: TapeStructure, places: tuple[int | None, ...], residuals: Sequence[Any]
    ) -> None:
        self.structure = structure
        self.places = places
        self.residuals = residuals
        self.shown = False
        self.args_res: list[Any] = []
        self.opaque: list[Any] = []

    def show(self, in_tree: PyTreeDef) -> None:
        """Put the residuals into the two lists."""
        if self.shown:
            return
        leaves: list[Any] = [NotNeeded() for _ in range(in_tree.num_leaves)]
        for place, residual in zip(self.places, self.residuals, strict=True):
            if place is None:
                self.opaque.append(public(residual))
            else:
                leaves[place] = public(residual)
        self.args_res = list(in_tree.unflatten(leaves))
        self.residuals = ()
        self.shown = True

    def tape(self, call: str, trees: Trees, in_avals: Sequence[ShapedArray]) -> Linearized:
        """The tape with its residuals."""
        if not self.shown:
            return put_together(self.structure, self.residuals)
        leaves = _argument_leaves(call, trees[0], self.args_res)
        opaque = iter(self.opaque)
        equations: list[Any] = []
        for place in self.places:
            value: Any = next(opaque) if place is None else leaves[place]
            if value is None or type(value) is NotNeeded:
                name = "a residual" if place is None else _leaf_name(trees[0], place)
                raise ArgumentValueError(
                    f"{call}: {name} is needed, but was taken out of it",
                    hint="put it back first: pullback.args_res[i] = value of argument i",
                )
            equations.append(as_value(value))
            if place is not None and equations[-1].aval.strong != in_avals[place].strong:
                raise ArgumentValueError(
                    f"{call}: args_res has another type for {_leaf_name(trees[0], place)}",
                    got=equations[-1].aval.str_short(),
                    expected=in_avals[place].str_short(),
                )
        return put_together(self.structure, equations)


def _argument_leaves(call: str, in_tree: PyTreeDef, args_res: Sequence[Any]) -> list[Any]:
    """The leaves of ``args_res``, None for those of arguments that are not there."""
    children = in_tree.children()
    if len(args_res) != len(children):
        msg = (
            f"{call}: args_res has {len(args_res)} entries, but there are {len(children)} arguments"
        )
        raise ArgumentValueError(msg)
    leaves: list[Any] = []
    for i, (child, arg) in enumerate(zip(children, args_res, strict=True)):
        if arg is None or type(arg) is NotNeeded:
            leaves.extend([None] * child.num_leaves)
            continue
        try:
            leaves.extend(child.flatten_up_to(arg))
        except ValueError as error:
            msg = f"{call}: args_res[{i}] has another structure than argument {i}: {error}"
            raise ArgumentValueError(msg) from error
    return leaves


def _leaf_name(in_tree: PyTreeDef, leaf: int) -> str:
    # The names of arguments are those of a call without keywords.
    _, whole = flatten((in_tree.unflatten(range(in_tree.num_leaves)), {}))
    return argument_names(whole)[leaf]


@final
class Pullback:
    """The linear function that ``vjp`` gives; see there. A pytree: its leaves are residuals."""

    __slots__ = ("__weakref__", "_avals", "_linear", "_name", "_parts", "_primals", "_trees")

    def __init__(
        self,
        name: str,
        linear: Linearized | _Parts,
        avals: Avals,
        trees: Trees,
        primals: Sequence[Any] = (),
    ) -> None:
        self._name = name
        self._linear = None if type(linear) is _Parts else linear
        self._parts = linear if type(linear) is _Parts else None
        self._avals = avals
        self._trees = trees
        # Which objects the arguments are, for ``args_res``: the tape keeps those alive that matter.
        self._primals = tuple([id(p) for p in primals])

    @property
    def in_tree(self) -> PyTreeDef:
        """Structure of the tuple of arguments."""
        return self._trees[0]

    @property
    def out_tree(self) -> PyTreeDef:
        """Structure of the result."""
        return self._trees[1]

    @property
    def args_res(self) -> list[Any]:
        """Arguments that the pullback needs, one tree for each: ``NotNeeded()`` for other arrays.

        Entries can be replaced: by None to let go of an argument that the caller keeps anyway, and
        by the argument before the pullback is called.

        >>> import tracebridge as tb
        >>> _, pullback = tb.vjp(lambda x, y: x * y, 2.0, tb.numpy.ones(1))
        >>> pullback.args_res[1]
        Array([1.], dtype=float32)
        """
        return self._shown().args_res

    @args_res.setter
    def args_res(self, values: Sequence[Any]) -> None:
        self._shown().args_res = list(values)

    @property
    def opaque_residuals(self) -> list[Any]:
        """What the pullback needs besides arguments."""
        return self._shown().opaque

    @opaque_residuals.setter
    def opaque_residuals(self, values: Sequence[Any]) -> None:
        shown = self._shown()
        if len(values) != len(shown.opaque):
            msg = f"the pullback of {self._name}: got {len(values)} opaque residuals"
            raise ArgumentValueError(msg, expected=str(len(shown.opaque)))
        shown.opaque = list(values)

    def replace(self, **changes: Any) -> Pullback:
        """The same with other ``args_res`` or ``opaque_residuals``."""
        leaves, tree = flatten(self)
        changed = tree.unflatten(leaves)
        for name, value in changes.items():
            if name not in ("args_res", "opaque_residuals"):
                msg = f"replace of the pullback of {self._name}: got {name}"
                raise ArgumentTypeError(msg, expected="args_res or opaque_residuals")
            setattr(changed, name, value)
        return changed

    @api_boundary
    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments for a cotangent of the result."""
        call, (in_tree, out_tree) = f"the pullback of {self._name}", self._trees
        if len(cotangents) != 1:
            raise ArgumentTypeError(
                call=call,
                got=f"{len(cotangents)} arguments",
                expected="one cotangent, a tree like the result",
                hint="give the cotangents of several results as one tuple: pullback((a, b))",
            )
        (cotangent,) = cotangents
        leaves, tree = flatten(cotangent)
        if tree != out_tree:
            leaves, tree = leaves_for(leaves, tree, out_tree)
        if tree != out_tree:
            check_same_structure(call, tree, out_tree, "cotangent", "result")
        in_avals, out_avals = self._avals
        cts = tangent_values(call, leaves, out_avals, tree, ("cotangent", "result"))
        linear = self._linear
        if linear is None:
            linear = self._apart().tape(call, self._trees, in_avals)
        # Auxiliary data of the call are results of the tape too; they have no cotangents.
        cts += [None] * (len(linear.out_nodes) - len(cts))
        gradients = backward(linear, cts, current_trace().process)
        flags = [a.tangent.dtype == a.dtype for a in in_avals]
        return in_tree.unflatten(
            [
                tangent_or_zeros(ct, a.tangent)
                for ct, a in zip(spread(gradients, flags), in_avals, strict=True)
            ]
        )

    def with_refs(self, *places: Any) -> Callable[[Any], tuple[Any, ...]]:
        """The function that adds cotangents to mutable references.

        Args:
            *places: trees like the arguments. Where a leaf is a reference, the cotangent is added
                to it, and ``ad.GradRef()`` is given in its place; where it is ``ad.DontWant()``,
                the cotangent is left out and ``ad.DidntWant()`` given: compiled programs do not
                compute it. Other cotangents (``ad.GradValue()``) are given as usual.

        >>> import tracebridge as tb
        >>> ref = tb.new_ref(10.0)
        >>> _, pullback = tb.vjp(lambda x, y: x * y, 2.0, 3.0)
        >>> pullback.with_refs(ref, tb.ad.DontWant())(1.0), ref
        ((GradRef(), DidntWant()), Ref(13., dtype=float32, weak_type=True))
        """
        leaves, tree = flatten(places)
        call = f"with_refs of the pullback of {self._name}"
        check_same_structure(call, tree, self._trees[0], "places", "arguments")

        def add_to_refs(cotangent: Any) -> tuple[Any, ...]:
            cts = flatten(self(cotangent))[0]
            for i, (place, ct) in enumerate(zip(leaves, cts, strict=True)):
                if isinstance(place, Ref):
                    place.addupdate(ct)
                    cts[i] = GradRef()
                elif type(place) is DontWant:
                    cts[i] = DidntWant()
            return self._trees[0].unflatten(cts)

        return add_to_refs

    def __repr__(self) -> str:
        return f"<pullback of {self._name}>"

    def _apart(self) -> _Parts:
        """The pullback in parts."""
        if self._parts is not None:
            return self._parts
        assert self._linear is not None
        facts = (self._name, self._avals, self._trees)
        residuals, structure = take_apart(self._linear, facts)
        leaves = {p: i for i, p in reversed(list(enumerate(self._primals)))}
        return _Parts(structure, tuple([leaves.get(id(r)) for r in residuals]), residuals)

    def _shown(self) -> _Parts:
        """The parts with residuals in the lists that users see; from now on these count."""
        self._parts = self._apart()
        self._linear = None
        self._parts.show(self._trees[0])
        return self._parts

    def tree_flatten(self) -> tuple[Sequence[Any], tuple[Any, ...]]:
        """Residuals and structure."""
        parts = self._apart()
        structure = (parts.structure, parts.places, parts.shown)
        if parts.shown:
            return (parts.args_res, parts.opaque), structure
        return parts.residuals, structure

    @classmethod
    def tree_unflatten(cls, structure: tuple[Any, ...], children: Sequence[Any]) -> Pullback:
        """The pullback of a structure and residuals."""
        tape, places, shown = structure
        parts = _Parts(tape, places, () if shown else children)
        if shown:
            args_res, opaque = children
            parts.args_res, parts.opaque, parts.shown = list(args_res), list(opaque), True
        return cls(tape.facts[0], parts, *tape.facts[1:])


register_pytree_node_class(Pullback)
