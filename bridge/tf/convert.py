"""to_tf: a function of tensors from a function of arrays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast, final

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable, resolve
from tracebridge._api.args.statics import Splitter, bind_statics, check_hashable, static_key
from tracebridge._api.args.values import short_repr
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.dtypes.width import number_dtype, width_of
from tracebridge.core.errors.argument_errors import IntegerRangeError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.exchange_errors import UnsupportedExchangeDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked
from tracebridge.core.runtime.backends.clients import end_thread
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.tf_adapter import ROWS, tf_adapter
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf.argument_rules import as_arguments, as_results
from tracebridge.tf.artifacts import writer
from tracebridge.tf.as_argument import as_itself
from tracebridge.tf.eager_calls import with_short_path
from tracebridge.tf.gradient import pull_all_orders, run_differentiable, run_without_gradient
from tracebridge.tf.keeping import Write
from tracebridge.tf.pullbacks import StoredPullbacks
from tracebridge.tf.signature import with_stand_ins, without_stand_ins
from tracebridge.tf.tracing import Request, Traced

_MAX_PROGRAMS = 256
_MAX_CALLS = 4096
_NUMBERS = (bool, int, float, complex)
_LEAST, _LARGEST = -(2**63), 2**63 - 1  # of the widest integers of tensors
_WRAPPERS = "tensorflow.python.trackable.data_structures"


class _Leaf(NamedTuple):
    """What a program depends on of one argument."""

    shape: tuple[int | None, ...] | None
    dtype: Any
    weak: bool


@api_boundary
@tf.autograph.experimental.do_not_convert  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
def to_tf(
    fun: Callable[..., object] | None = None,
    *,
    polymorphic_shapes: Any = None,
    polymorphic_constraints: Sequence[str] = (),
    with_gradient: bool = True,
    native_ops: bool = False,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[object] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    saved_grad_order: int | None = None,
) -> Callable[..., Any]:
    """``fun`` as a function of TensorFlow tensors, eager and in ``tf.function``.

    Tapes differentiate it to any order. A program is traced once for each structure, shapes and
    dtypes of the arguments. Sizes that a ``tf.function`` does not know become symbolic; they are
    at least 0, or at least 1 where the trace depends on that. Defaults of ``fun`` stay what they
    are. While a function of arrays is traced the result is ``fun``.

    Args:
        fun: function of arrays and trees of arrays. Without it the result is a decorator:
            ``@to_tf(native_ops=True)``.
        polymorphic_shapes: names of sizes that may change: a string such as ``"b, _, ..."`` or a
            ``PolyShape`` for all positional arguments, or one for each (trees of them for trees),
            None for an argument whose sizes come from the tensors. ``_`` and ``...`` take sizes
            from the tensor. Without it each unknown size has a symbol of its own.
        polymorphic_constraints: what is known of the sizes, such as ``"b >= 2"``; ``"b >= 0"``
            makes a trace that does not allow empty tensors an error.
        with_gradient: whether tapes differentiate the result; otherwise that is an error.
        native_ops: whether the program is written as operations that TensorFlow has itself, for
            converters that do not know its operation for XLA. Its derivatives are the same.
        platforms: what the program is for: some of ``"cpu"``, ``"cuda"``, ``"rocm"``, ``"tpu"`` and
            ``"gpu"`` (both kinds); None for all of them. TensorFlow refuses to run it elsewhere.
        disabled_checks: what is not checked: ``"platform"``, to run a program elsewhere, and
            ``"custom_call:name"``, to call what each process that runs it has to register; or
            ``tracebridge.export.DisabledSafetyCheck``.
        static_argnums: positions of arguments that are constants of the program, such as flags:
            any hashable objects. ``polymorphic_shapes`` does not count them.
        static_argnames: names of such arguments.
        saved_grad_order: how often a model that ``tf.saved_model.save`` writes can be
            differentiated by this function, in a process that does not have it; TensorFlow
            must save gradients: ``experimental_custom_gradients`` of ``tf.saved_model.SaveOptions``
            is on by default in new versions.
            None for what TensorFlow finds itself: once, if derivatives have no large constants of
            their own.

    Returns:
        A function that takes tensors, variables, NumPy arrays and numbers where ``fun`` takes
        arrays, and returns tensors. Results of dtype float0 are tensors of False.

    Raises:
        ArgumentSpecError: ``fun`` has no argument that ``static_argnums`` or ``static_argnames``
            speak of, or an option has a value that it does not take.
        InconclusiveDimensionError: when called: the program depends on relations of unknown
            sizes; the message says what to pass.
        ShapeMismatchError: when called: sizes do not fit ``polymorphic_shapes``.
        MissingRuleError: when called: with ``native_ops``, for what TensorFlow has no operations;
            the message names all of it.
        JaxprTypeError: when called: with ``native_ops``, the function has effects.

    >>> import tensorflow as tf
    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> f = tb.tf.to_tf(lambda x: tnp.sin(x) * 2)
    >>> f(tf.constant([0.0, 1.0])).shape
    TensorShape([2])
    """
    if fun is None:
        return functools.partial(
            to_tf,
            polymorphic_shapes=polymorphic_shapes,
            polymorphic_constraints=polymorphic_constraints,
            with_gradient=with_gradient,
            native_ops=native_ops,
            platforms=platforms,
            disabled_checks=disabled_checks,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            saved_grad_order=saved_grad_order,
        )
    check_callable("to_tf", fun)
    label = f"to_tf({name_of(fun)})"
    write = writer(label, native_ops, platforms, disabled_checks)
    order = checked_order(label, saved_grad_order, gradient=with_gradient)
    # () means "not given": what is missing is then derived from the other.
    nums = None if static_argnums == () else static_argnums
    names = None if static_argnames == () else static_argnames
    statics = resolve("to_tf", fun, "static", nums, names)
    constraints = tuple(polymorphic_constraints)
    options = Options(label, polymorphic_shapes, constraints, with_gradient, write, order)
    return converted(fun, options, statics)


class Options(NamedTuple):
    """How functions of arrays become functions of tensors.

    ``order``: how many derivatives are saved. ``as_jit``: whether calls take arguments as ``jit``
    does, for which numbers are as wide as arrays are by default, and 64 bits are an option.
    """

    label: str
    specs: Any
    constraints: tuple[str, ...]
    gradient: bool
    write: Write
    order: int | None = None
    as_jit: bool = False


def converted(
    fun: Callable[..., object],
    options: Options,
    statics: tuple[tuple[int, ...], tuple[str, ...]] = ((), ()),
) -> Callable[..., Any]:
    """``fun`` as a function of tensors, with ``statics``: positions and names."""
    by_leaves = (
        _ByStatics(fun, statics, lambda part: _Converted(part, options))
        if any(statics)
        else _Converted(fun, options)
    )
    signature = with_stand_ins(fun)

    @functools.wraps(fun, updated=())
    def call(*args: object, **kwargs: object) -> Any:
        if signature is not None:
            args, kwargs = without_stand_ins(signature, args, kwargs)
        return by_leaves(args, kwargs)

    if signature is not None:
        call.__signature__ = signature  # type: ignore[attr-defined]  # what inspect looks for
    general = api_boundary(tf.autograph.experimental.do_not_convert(call))
    if isinstance(by_leaves, _ByStatics) or not options.gradient or options.order is not None:
        return as_itself(general)
    return as_itself(with_short_path(general, options.label, by_leaves.known))


def checked_order(label: str, order: Any, *, gradient: bool = True) -> int | None:
    """The option ``saved_grad_order``.

    Raises:
        ArgumentSpecError: it is no number of derivatives, or there are none.
    """
    if order is None:
        return None
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 1:
        raise ArgumentSpecError(
            f"{label}: saved_grad_order is {short_repr(order)}", expected="1, 2, ... or None"
        )
    if not gradient:
        raise ArgumentSpecError(f"{label}: saved_grad_order with with_gradient=False")
    return int(order)


@final
class _ByStatics:
    """One converted function for each choice of static arguments."""

    __slots__ = ("_convert", "_converted", "_fun", "_splitter")

    def __init__(
        self,
        fun: Callable[..., object],
        statics: tuple[tuple[int, ...], tuple[str, ...]],
        convert: Callable[[Callable[..., object]], _Converted],
    ) -> None:
        self._fun = fun
        self._convert = convert
        self._splitter = Splitter("to_tf", fun, *statics)
        self._converted: BoundedCache[_Converted] = BoundedCache(
            f"static arguments of {self._splitter.call}", _MAX_PROGRAMS
        )

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        static, dynamic, _ = self._splitter.layout(len(args))
        names = self._splitter.names
        constants = [args[i] for i in static]
        named = {k: kwargs[k] for k in sorted(kwargs) if k in names}
        for what, value in (*zip(static, constants, strict=True), *named.items()):
            check_hashable(self._splitter.call, repr(what), value)
        key = (len(args), *map(static_key, constants), static_key(tuple(named.items())))
        converted = self._converted.get(key)
        if converted is None:
            part = bind_statics(self._fun, len(args), static, constants, named)
            converted = self._convert(part)
            self._converted.set(key, converted)
        rest = {k: v for k, v in kwargs.items() if k not in names}
        return converted(tuple([args[i] for i in dynamic]), rest)


@final
class _Converted:
    """What one ``to_tf(fun)`` remembers."""

    __slots__ = (
        "_calls",
        "_fun",
        "_name",
        "_options",
        "_parameters",
        "_programs",
        "_stored",
    )

    def __init__(self, fun: Callable[..., object], options: Options) -> None:
        self._fun = fun
        self._name = options.label
        self._options = options
        self._parameters = parameter_names(fun)
        order = options.order
        self._stored = None if order is None else StoredPullbacks(self._name, order)
        # Arguments -> program; several rows share a program where sizes are symbolic.
        self._calls: BoundedCache[Traced] = BoundedCache(f"calls of {self._name}", _MAX_CALLS)
        self._programs: BoundedCache[Traced] = BoundedCache(
            f"programs of {self._name}", _MAX_PROGRAMS
        )

    def __call__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        leaves, tree = flatten((args, kwargs))
        if any([type(leaf).__module__ == _WRAPPERS for leaf in leaves]):
            args, kwargs = tree_map(unwrap, (args, kwargs))
            leaves, tree = flatten((args, kwargs))
        if not is_eager() and _is_ours(leaves):
            return self._fun(*tree_map(_array_of, args), **tree_map(_array_of, kwargs))
        as_jit = self._options.as_jit
        weak = [not as_jit and type(leaf) in _NUMBERS for leaf in leaves]
        tensors = [
            leaf if w or isinstance(leaf, tf.Tensor) else self._tensor(leaf, tree, i)
            for i, (leaf, w) in enumerate(zip(leaves, weak, strict=True))
        ]
        if any(weak):
            try:
                tensors = _numbers_as_tensors(tensors, weak)
            except ValueError:  # TensorFlow does not say which
                self._check_numbers(leaves, tree)
                raise
        if as_jit:
            tensors = as_arguments(tensors)
        # Shapes of TensorFlow, which compare as such: tuples of them take three times as long.
        types = [(tensor.shape, tensor.dtype, w) for tensor, w in zip(tensors, weak, strict=True)]
        key = (tree, tuple(types), tracing_key())
        traced = self._calls.get(key)
        if traced is None:
            traced = self._find(args, tree, [_leaf(*row) for row in types])
            self._calls.set(key, traced)
        end_thread()  # what TensorFlow's tapes and executor call back cannot leave them later
        program = traced.program
        if self._stored is not None:
            outs = self._stored.run(program, tensors)
        elif self._options.gradient:
            outs = run_differentiable(program, tensors, pull_all_orders)
        else:
            outs = run_without_gradient(program, tensors, self._name)
        return traced.result(as_results(outs) if as_jit else outs)

    def known(self, tensors: tuple[Any, ...]) -> Traced | None:
        """The program of a call with these tensors, if there was one."""
        types = tuple([(x.shape, x.dtype, False) for x in tensors])
        return self._calls.get((flatten((tensors, {}))[1], types, tracing_key()))

    def _check_numbers(self, leaves: Sequence[object], tree: PyTreeDef) -> None:
        for i, leaf in enumerate(leaves):
            if type(leaf) is int and not _LEAST <= leaf <= _LARGEST:
                msg = f"{self._name}: {argument_names(tree, self._parameters)[i]} is {leaf}"
                raise IntegerRangeError(msg, expected="an integer of 64 bits, or a float")

    def _tensor(self, leaf: object, tree: PyTreeDef, i: int) -> Any:
        if isinstance(leaf, bool | int | float | complex):
            number: Any = leaf  # the stubs forget complex
            return tf.constant(number, row_dtype(as_value(leaf).aval.dtype))
        if isinstance(leaf, Array):
            return tf_adapter.export(leaf)
        if isinstance(leaf, tf.Variable | np.ndarray | np.generic) or hasattr(
            type(leaf), "__tf_tensor__"
        ):
            check_unmasked(leaf)
            known = not isinstance(leaf, np.ndarray | np.generic)
            # TensorFlow says no more than that it does not have the dtype of a NumPy array.
            with contextlib.nullcontext() if known else contextlib.suppress(ValueError):
                return tf.convert_to_tensor(cast("Any", leaf))
        name = argument_names(tree, self._parameters)[i]
        raise UnsupportedDtypeError(
            f"{self._name}: {name} is {short_repr(leaf)} of type {type(leaf).__name__}",
            expected="dense tensors, variables, NumPy arrays, numbers, and trees of them",
            hint=_dense_form(leaf),
        )

    def _find(self, args: tuple[object, ...], tree: PyTreeDef, rows: list[_Leaf]) -> Traced:
        """The program for these arguments, traced if there is none."""
        names = argument_names(tree, self._parameters)
        specs = shape_rules.spread_specs(self._name, self._options.specs, flatten(args)[1])
        specs += [None] * (len(rows) - len(specs))
        sizes = [row.shape for row in rows]
        dtypes = [
            (our_dtype(row.dtype, f"{self._name}: {name}"), row.weak)
            for row, name in zip(rows, names, strict=True)
        ]
        fun, (constraints, write) = self._fun, (self._options.constraints, self._options.write)
        request = Request(self._name, fun, tree, names, dtypes, sizes, specs, constraints, write)
        request.connected = self._options.as_jit
        shapes = request.symbolic(0)
        shape_rules.check_sizes(self._name, shapes, sizes, names)
        # The text of symbols, since each call makes a scope of its own.
        leaves = [(str(s), r.dtype, r.weak) for s, r in zip(shapes, rows, strict=True)]
        key = (tree, *leaves, tracing_key())
        traced = self._programs.get(key)
        if traced is None:
            traced = request.trace()
            self._programs.set(key, traced)
        if shape_rules.is_too_small(traced.shapes, sizes):
            traced = request.alone()
        return traced


def _leaf(shape: Any, dtype: tf.DType, weak: bool) -> _Leaf:
    return _Leaf(None if shape.rank is None else tuple(shape), dtype, weak)


def _is_ours(leaves: Sequence[object]) -> bool:
    """Whether a call with these leaves while a function of arrays is traced belongs to it.

    A graph of TensorFlow may be built meanwhile: its tensors have no values.
    """
    symbolic = [tf.is_symbolic_tensor(leaf) for leaf in leaves]
    return not any(symbolic) or any([isinstance(leaf, Tracer) for leaf in leaves])


def _dense_form(leaf: object) -> str:
    """What to pass in place of a tensor of another kind."""
    for kind, form in (
        (tf.RaggedTensor, "x.to_tensor(), whose rows are filled up,"),
        (tf.SparseTensor, "tf.sparse.to_dense(x)"),
        (tf.IndexedSlices, "tf.convert_to_tensor(x)"),
        (tf.TensorArray, "x.stack()"),
    ):
        if isinstance(leaf, kind):
            return f"pass {form} in place of x"
    return ""


def _array_of(leaf: object) -> Any:
    """A leaf as a function of arrays takes it.

    Raises:
        ExchangeError: a tensor of a graph stands beside traced values.
    """
    return tf_adapter.import_(leaf) if isinstance(leaf, tf.Tensor | tf.Variable) else leaf


def our_dtype(dtype: tf.DType, where: str = "") -> np.dtype[Any]:
    """Our dtype of one of TensorFlow's; ``where`` names the argument that has it.

    Raises:
        UnsupportedExchangeDtypeError: the engine has none.
    """
    try:
        return ROWS.ours(dtype.name)
    except UnsupportedExchangeDtypeError as error:
        if not where:
            raise
        raise UnsupportedExchangeDtypeError(
            f"{where} is a tensor of dtype {dtype.name}",
            expected=error.expected,
            hint="pass what the program computes with; strings and other objects are arguments of "
            "functions of TensorFlow, or static arguments",
        ) from None


def _numbers_as_tensors(leaves: Sequence[Any], weak: Sequence[bool]) -> list[Any]:
    """Leaves of which some are Python numbers as tensors, as wide as those beside them."""
    pairs = list(zip(leaves, weak, strict=True))
    # What the engine does not have is refused elsewhere, with its name.
    wide = width_of([np.dtype(t.dtype.as_numpy_dtype) for t, w in pairs if not w])
    return [tf.constant(t, row_dtype(number_dtype(t, wide))) if w else t for t, w in pairs]


def row_dtype(dtype: np.dtype[Any]) -> tf.DType:
    """TensorFlow's dtype of a Python number."""
    return tf.as_dtype(dtype.name)


def unwrap(x: object) -> Any:
    """Plain containers in place of those that ``tf.Module`` makes of its attributes."""
    if type(x).__module__ == _WRAPPERS:
        x = getattr(x, "__wrapped__", x)
    if isinstance(x, dict):
        return {k: unwrap(v) for k, v in x.items()}
    if isinstance(x, tuple):
        values = [unwrap(v) for v in x]
        return type(x)(*values) if hasattr(x, "_fields") else tuple(values)
    if isinstance(x, list):
        return [unwrap(v) for v in x]
    return x
