"""Programs as TensorFlow's own operations, for targets that know no XlaCallModule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import tensorflow as tf

from tracebridge.core.config.settings import Settings
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import JaxprTypeError, MissingRuleError
from tracebridge.core.symbolic.evaluate import dims_evaluate
from tracebridge.core.symbolic.solve import size_name, solve_dim_variables
from tracebridge.tf._native import families as _families  # pyright: ignore[reportUnusedImport]  # noqa: F401 - registers the rules
from tracebridge.tf._native.builder import Builder, SizeOps, Tensor, is_static
from tracebridge.tf._xla_call_module import checked, input_types

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr


@final
class NativeModule:
    """A program as a function of flat tensors that consists of TensorFlow's operations.

    In a graph it writes them there; eagerly it runs a graph of its own.
    """

    __slots__ = ("_function", "_in", "_jaxpr", "_name", "_names", "_settings", "_solution")

    def __init__(self, jaxpr: Jaxpr, name: str, names: Sequence[str]) -> None:
        if jaxpr.effects:
            effects = ", ".join(sorted({str(e) for e in jaxpr.effects}))
            msg = f"{name}: TensorFlow's operations have no effects, the program has {effects}"
            raise JaxprTypeError(msg, hint="leave native_ops out for this function")
        self._name = name
        self._names = tuple(names)
        self._jaxpr = jaxpr
        # Definitions of primitives are traced as the program was, whenever that is.
        self._settings = Settings()
        self._in = input_types(jaxpr.in_avals)
        self._solution = solve_dim_variables([a.shape for a in jaxpr.in_avals])
        self._function: Any = None  # a concrete function, once something calls it eagerly

    def __call__(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The results at ``tensors``.

        Raises:
            ShapeMismatchError: a tensor does not have the shape or dtype of the program.
            MissingRuleError: TensorFlow has no operations for some of the program.
        """
        tensors = checked(self._name, self._names, tensors, self._in)
        if not self._jaxpr.out_avals:
            return []
        if not tf.executing_eagerly():
            return self._written(tensors)
        if self._function is None:
            specs = [tf.TensorSpec(shape, dtype) for dtype, shape in self._in]
            function = tf.function(
                lambda *xs: self._written(xs), input_signature=specs, autograph=False
            )
            self._function = function.get_concrete_function()
        # Whoever differentiates has a program of ours for it: tapes need not look inside.
        return list(self._function(*[_without_tapes(t) for t in tensors]))

    def _written(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The results, with their operations in the graph that is built just now."""
        b = Builder()
        jaxpr = self._jaxpr
        if not all([is_static(a.shape) for a in jaxpr.in_avals]):
            tensors = self._with_sizes(b, tensors)
        with self._settings.again():
            outs = b.inline(jaxpr, tensors)
        if not b.missing:
            return outs
        what = "; ".join([f"{name!r} of {dtypes}" for name, dtypes in b.missing.items()])
        raise MissingRuleError(
            next(iter(b.missing)),
            message=f"{self._name}: TensorFlow has no operations for {what}",
            hint="leave native_ops out for this function; or compute that part outside, or in "
            "another dtype; where only the gradient has it, to_tf(with_gradient=False) and "
            "save(grad_order=0) do without",
        )

    def _with_sizes(self, b: Builder, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors, where their sizes fit; the builder learns the dimension variables."""
        sizes: dict[str, Tensor] = {}
        for i, x in enumerate(tensors):
            sizes_of = list(x.shape) if x.shape.is_fully_defined() else tf.unstack(tf.shape(x))
            for axis, (known, size) in enumerate(zip(x.shape, sizes_of, strict=True)):
                sizes[size_name(i, axis)] = size if known is None else known
        env = self._solution.bind(sizes, SizeOps)
        b.sizes = {name: env[name] for name in self._solution.sources}
        checks: list[Tensor] = []
        for assertion in self._solution.assertions:
            left = dims_evaluate(assertion.left, env, SizeOps)
            right = dims_evaluate(assertion.right, env, SizeOps)
            message = assertion.message.format(left=left, right=right)
            if is_static((left, right)):
                if not assertion.holds(left, right):
                    raise ShapeMismatchError(f"{self._name}: {message}")
            elif assertion.relation == "==":
                text = assertion.message.format(left="one size", right="another")
                checks.append(tf.debugging.assert_equal(left, right, message=text))
            elif not _is_some_size(left, right, sizes):
                text = assertion.message.format(left="a smaller size", right=right)
                checks.append(tf.debugging.assert_greater_equal(left, right, message=text))
        with tf.control_dependencies([check for check in checks if check is not None]):
            return [tf.identity(x) for x in tensors] if checks else list(tensors)


def _is_some_size(left: Tensor, right: Tensor, sizes: dict[str, Tensor]) -> bool:
    """Whether ``left`` is a size, and so at least ``right``, which is not positive."""
    is_size = any([left is size for size in sizes.values()])
    return is_size and isinstance(right, int) and right <= 0


def _without_tapes(x: Tensor) -> Tensor:
    return tf.stop_gradient(x) if x.dtype.is_floating or x.dtype.is_complex else x
