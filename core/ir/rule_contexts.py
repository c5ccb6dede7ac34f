"""What rules may ask of the interpreter that runs them (the implementations are above)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from contextlib import AbstractContextManager

    import numpy as np

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.effects import Effect, Effects
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.sharding.mesh import Mesh

    Lowered = IrValue | Sequence[IrValue]
    """What a lowering rule gives: a list where the primitive has several results."""


class BatchContext(Protocol):
    """Given to ``Primitive.batch``: the size and the name of the axis that is being batched.

    ``axis`` is what rules pass on to ``batch_jaxpr``: the name, None, or the name together with
    the axes of a mesh that it is spread over, which are ``spmd_name`` then.
    """

    size: Any
    axis: Any
    axis_name: Any
    spmd_name: tuple[Any, ...] | None


class LoweringContext(Protocol):
    """Given to ``Primitive.lower``: builders of operations, and what is known of the program.

    Builders are in core/mlir/builders.py, the others in core/lowering/context.py.
    """

    module: Any
    avals_in: tuple[ShapedArray, ...]
    avals_out: tuple[ShapedArray, ...]
    platform: str
    platforms: tuple[str, ...]
    axis_env: tuple[tuple[Any, int], ...]
    n_replicas: int
    mesh: Mesh | None
    manual: tuple[Any, ...]
    channels: int
    callbacks: list[Any]
    inspections: list[Any]
    keepalives: list[Any]
    merged: dict[Any, str]
    tokens: dict[Effect, Any]
    rules: dict[tuple[Any, str], Callable[..., Any]]
    create: Callable[..., Any]

    @property
    def aval_out(self) -> ShapedArray:
        """The aval of the only result."""
        ...

    @property
    def is_split(self) -> bool:
        """Whether XLA divides what is written here over several devices."""
        ...

    # operations ----------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[IrValue],
        results: Sequence[Any],
        attributes: dict[str, Any] | None = None,
        regions: int = 0,
    ) -> Any:
        """The operation ``name``; ``results`` are avals or MLIR types."""
        ...

    def op1(
        self,
        name: str,
        operands: Sequence[IrValue],
        result: Any,
        attributes: dict[str, Any] | None = None,
    ) -> IrValue:
        """The only result of operation ``name``."""
        ...

    def splat(self, value: complex, aval: ShapedArray) -> IrValue:
        """A constant array, all elements the Python scalar ``value``."""
        ...

    def dense(self, array: Any) -> IrValue:
        """A constant with the elements of a NumPy array."""
        ...

    def constant(self, value: complex | np.ndarray[Any, Any], aval: ShapedArray) -> IrValue:
        """A splat or dense constant of ``aval``."""
        ...

    def dense_i64(self, values: Any) -> Any:
        """A dense attribute of int64."""
        ...

    # shapes --------------------------------------------------------------------------------------

    def dim(self, size: Any) -> IrValue:
        """An ``i32`` scalar that holds a dimension."""
        ...

    def dims_by_name(self) -> dict[str, IrValue]:
        """The ``i32`` scalars that hold the dimension variables."""
        ...

    def define_dim(self, name: str, value: IrValue) -> None:
        """Say which ``i32`` scalar holds the dimension variable ``name``."""
        ...

    def shape_tensor(self, shape: Sequence[Any]) -> IrValue:
        """A 1-d ``i32`` tensor that holds ``shape``."""
        ...

    def broadcast_in_dim(self, x: IrValue, aval: ShapedArray, dims: Sequence[int]) -> IrValue:
        """``x`` with its axes placed at ``dims`` of ``aval`` and repeated along the others."""
        ...

    def reshape(self, x: IrValue, aval: ShapedArray) -> IrValue:
        """``x`` with the shape of ``aval``."""
        ...

    def iota(self, aval: ShapedArray, dimension: int) -> IrValue:
        """Positions along ``dimension``."""
        ...

    def transpose(self, x: IrValue, aval: ShapedArray, permutation: Sequence[int]) -> IrValue:
        """``x`` with permuted axes."""
        ...

    def slice(
        self,
        x: IrValue,
        aval: ShapedArray,
        starts: Sequence[Any],
        limits: Sequence[Any],
        strides: Sequence[Any],
    ) -> IrValue:
        """``x[starts:limits:strides]``."""
        ...

    def resized(
        self, x: IrValue, aval: ShapedArray, axis: int, size: Any
    ) -> tuple[IrValue, ShapedArray]:
        """``x`` with zeros behind, or cut there, so that ``axis`` has ``size``; and its aval."""
        ...

    # elementwise ---------------------------------------------------------------------------------

    def convert(self, x: IrValue, aval: ShapedArray) -> IrValue:
        """``x`` with the element type of ``aval``."""
        ...

    def compare(
        self, x: IrValue, y: IrValue, aval: ShapedArray, direction: str, kind: str | None = None
    ) -> IrValue:
        """Elementwise comparison; ``aval`` is the boolean result's."""
        ...

    def select(
        self, predicate: IrValue, on_true: IrValue, on_false: IrValue, aval: ShapedArray
    ) -> IrValue:
        """``on_true`` where ``predicate``, else ``on_false``."""
        ...

    # regions -------------------------------------------------------------------------------------

    def reduce(
        self,
        operands: Sequence[IrValue],
        inits: Sequence[IrValue],
        avals_out: Sequence[ShapedArray],
        axes: Sequence[int],
        body: Callable[[Sequence[IrValue], Sequence[IrValue]], Sequence[IrValue]],
    ) -> list[IrValue]:
        """``stablehlo.reduce``; ``body(accumulators, elements)`` emits the combined scalars."""
        ...

    def while_loop(
        self,
        operands: Sequence[IrValue],
        avals: Sequence[ShapedArray],
        condition: Callable[[Sequence[IrValue]], IrValue],
        body: Callable[[Sequence[IrValue]], Sequence[IrValue]],
    ) -> list[IrValue]:
        """``stablehlo.while``; ``condition(values)`` and ``body(values)`` emit their regions."""
        ...

    def block(
        self, region: Any, avals: Sequence[ShapedArray]
    ) -> AbstractContextManager[list[IrValue]]:
        """``with ctx.block(region, avals) as arguments:`` emits into a new block."""
        ...

    def finish(self, values: Sequence[IrValue], terminator: str = "stablehlo.return") -> None:
        """End a block with its results."""
        ...

    def by_platform(
        self,
        choices: Sequence[Any],
        emit: Callable[[Any], Sequence[IrValue]],
        avals: Sequence[ShapedArray],
        effects: Effects = ...,
    ) -> list[IrValue]:
        """What ``emit(choice)`` gives for the choice of the platform that the program runs on."""
        ...

    def by_rules(
        self,
        rules: Sequence[Callable[..., Any] | None],
        operands: Sequence[object],
        params: dict[str, Any],
        *,
        multiple: bool,
    ) -> Any:
        """Lower the current equation by one rule for each of ``platforms``."""
        ...

    # programs ------------------------------------------------------------------------------------

    def lower_fun(
        self, fun: Callable[..., Any], *operands: IrValue, avals_in: Any = None, **params: Any
    ) -> list[IrValue]:
        """Trace ``fun`` on the avals of ``operands`` and emit it inline."""
        ...

    def call_jaxpr(self, jaxpr: Jaxpr, operands: Sequence[IrValue], name: str) -> list[IrValue]:
        """Emit ``jaxpr`` once as a private function and call it."""
        ...

    def call_fun(
        self,
        key: Hashable,
        fun: Callable[..., Any],
        operands: Sequence[IrValue],
        avals: Sequence[ShapedArray],
        name: str,
    ) -> list[IrValue]:
        """Call ``fun`` (values -> a value) as a private function.

        It is traced once for ``key`` and these types, and emitted once per module.
        """
        ...

    def fill_function(
        self,
        function: Any,
        in_types: Sequence[object],
        jaxpr: Jaxpr,
        dims: Sequence[str] = (),
        end: str = "func.return",
    ) -> None:
        """Emit ``jaxpr`` as the region of an operation, with a block of its own."""
        ...

    def inline_jaxpr(
        self, jaxpr: Jaxpr, operands: Sequence[IrValue], part: str = ""
    ) -> list[IrValue]:
        """Emit the equations of ``jaxpr`` here; ``part`` of the current equation."""
        ...

    def function_of(self, jaxpr: Jaxpr, name: str) -> str:
        """The symbol of ``jaxpr`` as a private function, emitted once per module."""
        ...

    def unique_name(self, name: str) -> str:
        """A symbol that no other function of the module has."""
        ...
