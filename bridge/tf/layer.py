"""``Layer``: a function with its parameters as a layer of Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import tensorflow as tf

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.argnums import names as as_names
from tracebridge._api.args.values import short_repr
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import PyTreeDef, broadcast, flatten
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.core.tree.treedefs import leaf_paths
from tracebridge.core.util.public_path import public_path
from tracebridge.tf import shapes as shape_rules
from tracebridge.tf.artifacts import writer
from tracebridge.tf.convert import checked_order, to_tf, unwrap
from tracebridge.tf.signature import unique

keras: Any = tf.keras  # which TensorFlow loads at its first use


@keras.utils.register_keras_serializable(package="tracebridge")
@public_path("tracebridge.tf")
class Layer(keras.layers.Layer):
    """A function ``fun(params, *inputs)`` as a layer of Keras that owns ``params``.

    Each leaf of ``params`` becomes a weight with its value, named by its path:
    ``{'dense': {'w': ...}}`` gives ``dense.w``. The layer stands in sequential, functional and
    subclassed models; shapes of its results are known where those of ``fun`` are, with a batch of
    any size. With a policy such as ``mixed_float16`` weights and inputs are cast for the call.

    A model with the layer is saved as ``.keras`` where Keras knows ``fun``: decorate it with
    ``keras.saving.register_keras_serializable()``, and import ``Layer`` before loading.

    Args:
        fun: function of arrays: of a tree of parameters and the inputs; without ``params`` of the
            inputs alone.
        params: tree of arrays, tensors, variables and numbers; dicts with strings as keys, lists
            and tuples, where the layer is to be saved as ``.keras``.
        trainable: whether the weights are trained, or a tree of that, which may be a prefix of
            ``params``. Integers and bools are never trained.
        polymorphic_shapes: as for ``to_tf``, for the inputs.
        static_argnames: names of arguments of ``fun`` that are constants of the program.
        train_argname: name of an argument of ``fun`` that gets ``training``, as a constant.
        polymorphic_constraints: as for ``to_tf``: what is known of the sizes of
            ``polymorphic_shapes``.
        native_ops: as for ``to_tf``: whether the layer consists of TensorFlow's own operations.
        platforms: as for ``to_tf``: what the layer is for.
        disabled_checks: as for ``to_tf``: what TensorFlow does not check.
        saved_grad_order: as for ``to_tf``: how often the layer can be differentiated in models
            that ``tf.saved_model.save`` or ``export`` write.
        **kwargs: further arguments of ``keras.layers.Layer``: ``name``, ``dtype``.

    Raises:
        ArgumentSpecError: Keras runs on another backend than TensorFlow; ``trainable`` has
            another structure than ``params``; ``saved_grad_order`` is no number of derivatives.
        UnsupportedDtypeError: a leaf of ``params`` is no array or number.

    >>> import tensorflow as tf
    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.tf import Layer
    >>> layer = Layer(lambda p, x: tnp.tanh(x @ p["w"]), {"w": tnp.ones((3, 2))}, name="dense")
    >>> model = tf.keras.Sequential([tf.keras.Input((3,)), layer])
    >>> model.output_shape, [w.path for w in model.trainable_variables]
    ((None, 2), ['dense/w'])
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        params: Any = None,
        *,
        trainable: Any = True,
        polymorphic_shapes: Any = None,
        static_argnames: str | Sequence[str] = (),
        train_argname: str | None = None,
        polymorphic_constraints: Sequence[str] = (),
        native_ops: bool = False,
        platforms: Sequence[str] | None = None,
        disabled_checks: Sequence[str] = (),
        saved_grad_order: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_callable("Layer", fun)
        if keras.config.backend() != "tensorflow":
            msg = f"Layer: Keras runs on the backend {keras.config.backend()!r}"
            raise ArgumentSpecError(msg, hint="set KERAS_BACKEND=tensorflow before importing Keras")
        super().__init__(**kwargs)
        label = f"Layer({name_of(fun)})"
        writer(label, native_ops, platforms, disabled_checks)  # says what is wrong
        options = {
            "native_ops": native_ops,
            "platforms": _as_list(platforms),
            "disabled_checks": _as_list(disabled_checks),
            "saved_grad_order": checked_order(label, saved_grad_order),
        }
        constraints = list(polymorphic_constraints)
        statics = as_names("Layer", "static_argnames", static_argnames)
        self._options = {
            "trainable": trainable,
            "polymorphic_shapes": polymorphic_shapes,
            "static_argnames": list(statics),
            "train_argname": train_argname,
            "polymorphic_constraints": constraints,
            **options,
        }
        if train_argname is not None:
            statics += (train_argname,)
        self._fun = fun
        self._train_argname = train_argname
        leaves, self._tree = flatten(unwrap(params))
        whole = isinstance(trainable, bool)
        self._add(leaves, _flags(fun, True if whole else trainable, self._tree))
        if whole:
            self.trainable = trainable  # Keras' own switch, which may be turned again
        tree = None if params is None else self._tree
        sizes = polymorphic_shapes, constraints
        self._calls = _Calls(fun, tree, sizes, statics, options)
        self.built = True

    def _add(self, leaves: Sequence[Any], flags: Sequence[bool]) -> None:
        paths = [
            keystr(p, simple=True, separator=".").replace("/", "_") for p in leaf_paths(self._tree)
        ]
        names = unique([path or "params" for path in paths])
        # A tuple: Keras looks into lists for weights, and these it knows.
        self._leaves = tuple(
            [
                self._weight(leaf, name, trainable=flag)
                for leaf, name, flag in zip(leaves, names, flags, strict=True)
            ]
        )

    def _weight(self, leaf: Any, name: str, *, trainable: bool) -> Any:
        value = _value(leaf, name)
        dtype = tf.as_dtype(value.dtype)
        if dtype.is_floating and self.variable_dtype != _USUAL:
            dtype = tf.as_dtype(self.variable_dtype)
        return self.add_weight(
            name=name,
            shape=value.shape,
            dtype=dtype.name,
            initializer=lambda shape, dtype: tf.cast(value, dtype),
            trainable=trainable and (dtype.is_floating or dtype.is_complex),
        )

    def call(self, *inputs: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """What ``fun`` returns, for tensors."""
        if self._train_argname is not None:
            kwargs[self._train_argname] = bool(training)
        weights = tuple([tf.convert_to_tensor(w) for w in self._leaves])
        return self._calls(weights, inputs, kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Symbolic results of Keras, by a trace of the function."""
        args, kwargs = keras.tree.map_structure(_dense, (args, kwargs))
        return super(keras.layers.Layer, self).compute_output_spec(*args, **kwargs)

    def compute_output_shape(self, *input_shapes: Any) -> Any:
        """Shapes of the results, from a tree of shapes for each input.

        The inputs have the dtype of the policy; int32, where the function does not take that.
        """
        try:
            outs = self._outs_at(input_shapes, self.compute_dtype)
        except Exception as error:  # noqa: BLE001 - a function may refuse a dtype in any way
            try:
                outs = self._outs_at(input_shapes, "int32")
            except Exception:  # noqa: BLE001 - floats are what most layers take: say why not
                raise error from None
        return keras.tree.map_structure(lambda out: tuple(out.shape), outs)

    def _outs_at(self, input_shapes: Any, dtype: str) -> Any:
        inputs = keras.tree.map_shape_structure(
            lambda shape: keras.KerasTensor(shape, dtype), input_shapes
        )
        return self.compute_output_spec(*inputs)

    def get_config(self) -> dict[str, Any]:
        """What ``from_config`` makes the layer of, but for the values of the weights.

        Raises:
            ArgumentSpecError: ``params`` is no tree of dicts, lists and tuples.
        """
        names = [f"{np.dtype(w.dtype).name}{list(w.shape)}" for w in self._leaves]
        params = None if self._calls.tree is None else self._tree.unflatten(names)
        if not _is_plain(params):
            msg = f"Layer({name_of(self._fun)}): params is a {type(params).__name__} of {params}"
            raise ArgumentSpecError(
                msg, expected="dicts with strings as keys, lists and tuples, to be saved by Keras"
            )
        serialize = keras.utils.serialize_keras_object
        options = {k: serialize(v) for k, v in self._options.items()}
        # Where there are flags of leaves, they stay behind the switch of the layer.
        if isinstance(self._options["trainable"], bool):
            options["trainable"] = self.trainable
        options["frozen"] = not self.trainable
        base = {k: v for k, v in super().get_config().items() if k != "trainable"}
        return {**base, "fun": serialize(self._fun), "params": serialize(params), **options}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """A layer of the same function, with weights of zeros: a configuration has no values."""
        given = dict(config)
        dtype = given.pop("dtype", None)
        rest = {k: keras.utils.deserialize_keras_object(v) for k, v in given.items()}
        rest["params"] = tree_map(_zeros, rest["params"])
        if isinstance(dtype, dict):
            dtype = keras.utils.deserialize_keras_object(dtype)
        frozen = rest.pop("frozen", False)
        layer = cls(**rest, dtype=dtype)
        if frozen:
            layer.trainable = False
        return layer


@final
class _Calls:
    """``fun`` at tensors: converted once for each choice of names of unknown sizes.

    ``tree``: the structure of its parameters, None if it has none. ``sizes``: the shapes and the
    constraints of the user. ``options``: of ``to_tf``.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        tree: Any,
        sizes: tuple[Any, Sequence[str]],
        statics: tuple[str, ...],
        options: dict[str, Any],
    ) -> None:
        self._fun = fun
        self._options = options
        self.tree = tree
        self._specs, self._constraints = sizes
        self._statics = statics
        self._converted: dict[Any, Callable[..., Any]] = {}

    def __call__(
        self, weights: tuple[Any, ...], inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        leaves, tree = flatten(inputs)
        if any([isinstance(x, tf.SparseTensor) for x in leaves]):
            leaves = [
                tf.sparse.to_dense(x) if isinstance(x, tf.SparseTensor) else x for x in leaves
            ]
            inputs = tree.unflatten(leaves)
        specs = self._specs_of(leaves, tree)
        key = tree, specs
        converted = self._converted.get(key)
        if converted is None:
            shapes = None if specs is None else (None, *tree.unflatten(specs))
            converted = to_tf(
                self._flat(),
                polymorphic_shapes=shapes,
                polymorphic_constraints=() if specs is None else self._constraints,
                static_argnames=self._statics,
                **self._options,
            )
            self._converted[key] = converted
        return converted(weights, *inputs, **kwargs)

    def _specs_of(self, leaves: Sequence[Any], tree: PyTreeDef) -> tuple[str, ...] | None:
        """The specifications of the inputs; None where all sizes are known."""
        if self._specs is not None:
            name = f"Layer({name_of(self._fun)})"
            specs = shape_rules.spread_specs(name, self._specs, tree)
        else:
            shapes = [None if x.shape.rank is None else tuple(x.shape) for x in leaves]
            if all([s is None or None not in s for s in shapes]):
                return None
            specs = shape_rules.batch_specs(shapes, [f"x{i}" for i in range(len(shapes))])
        return tuple(["..." if s is None else s for s in specs])

    def _flat(self) -> Callable[..., Any]:
        """The function of a tuple of weights and the inputs."""
        fun, tree = self._fun, self.tree

        @functools.wraps(fun, updated=())
        def flat(weights: Any, *inputs: Any, **kwargs: Any) -> Any:
            first = () if tree is None else (tree.unflatten(weights),)
            return fun(*first, *inputs, **kwargs)

        del flat.__wrapped__  # its signature is another one
        return flat


def _dense(x: Any) -> Any:
    """A symbolic tensor of Keras as one that is not sparse: the double of any one says it is."""
    return keras.KerasTensor(x.shape, x.dtype) if getattr(x, "sparse", False) else x


def _as_list(names: Sequence[str] | None) -> list[str] | str | None:
    """What Keras writes into files."""
    return names if names is None or isinstance(names, str) else list(map(str, names))


def _flags(fun: Any, trainable: Any, tree: Any) -> list[bool]:
    """Whether each leaf of ``params`` is trained."""
    try:
        found = flatten(broadcast(trainable, tree.unflatten([0] * tree.num_leaves)))[0]
    except Exception as error:
        msg = f"Layer({name_of(fun)}): trainable has another structure than params"
        raise ArgumentSpecError(msg, got=short_repr(trainable), expected=str(tree)) from error
    return [bool(flag) for flag in found]


def _value(leaf: Any, name: str) -> Any:
    """A parameter as a NumPy array."""
    check_unmasked(leaf)
    if isinstance(leaf, Array | np.ndarray | np.generic | bool | int | float | complex):
        array = np.asarray(leaf)
        weak = isinstance(leaf, int | float | complex) and not isinstance(leaf, bool)
        return array.astype(_NARROW.get(array.dtype.name, array.dtype)) if weak else array
    if hasattr(leaf, "numpy"):
        return np.asarray(leaf.numpy())
    raise UnsupportedDtypeError(
        f"Layer: params has the leaf {name} {short_repr(leaf)} of type {type(leaf).__name__}",
        expected="arrays, tensors, variables, numbers, and trees of them",
    )


_USUAL = "float32"
"""The dtype of Keras' weights, unless somebody wants another; given weights then keep theirs."""
_NARROW = {"int64": "int32", "float64": "float32", "complex128": "complex64"}


def _is_plain(tree: Any) -> bool:
    if type(tree) is dict:
        return all(isinstance(k, str) and _is_plain(v) for k, v in tree.items())
    if type(tree) in (list, tuple):
        return all(map(_is_plain, tree))
    return tree is None or isinstance(tree, str)


def _zeros(text: str) -> np.ndarray[Any, Any]:
    """A value of the type that ``get_config`` writes, such as ``float32[3, 2]``."""
    dtype, _, shape = text.rstrip("]").partition("[")
    return np.zeros(
        [int(d) for d in shape.split(",") if d.strip()], tf.as_dtype(dtype).as_numpy_dtype
    )
