"""What libraries read from private modules of the peer, in terms of the engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib.pytree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
)
from tracebridge.core.compat.hijax.mutable import EffectTypes
from tracebridge.core.dtypes import extended
from tracebridge.core.dtypes.dtypes import as_dtype, complex_of, is_inexact
from tracebridge.core.ir.trace import Trace, current_trace, is_eager
from tracebridge.core.lax.shape.axes import as_shape
from tracebridge.core.runtime.backends.clients import started
from tracebridge.core.runtime.processes.connection import connection
from tracebridge.core.sharding.context import named_sharding
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.symbolic.dims import DimExpr
from tracebridge.core.tree import prefix

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.errors.transform_errors import TreeMismatchError
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.sharding.partition_spec import PartitionSpec

DType = np.dtype
DimSize = int | DimExpr
Shape = tuple[DimSize, ...]
Out = Any
BuiltInKeyEntry = DictKey | FlattenedIndexKey | GetAttrKey | SequenceKey
remat_allowed_effects = EffectTypes("in_checkpoint")
custom_derivatives_allowed_effects = EffectTypes("in_custom_rules")
"""Effects that may stand in functions with derivatives of their own; as the one above."""


def trace_state_clean() -> bool:
    """Whether nothing is traced, differentiated or batched here.

    >>> from tracebridge._src import core
    >>> core.trace_state_clean()
    True
    """
    return is_eager()


@final
class TraceContext:
    """What is traced here, in this thread.

    >>> import tracebridge as tb
    >>> from tracebridge._src import core
    >>> core.trace_ctx.is_top_level(), tb.jit(lambda: core.trace_ctx.is_top_level())().item()
    (True, False)
    """

    __slots__ = ()

    @property
    def trace(self) -> Trace:
        """The innermost trace; the one that evaluates at once where nothing is traced."""
        return current_trace()

    def is_top_level(self) -> bool:
        """Whether nothing is traced, differentiated or batched here."""
        return is_eager()


trace_ctx = TraceContext()


def infer_argnums_and_argnames(
    sig: inspect.Signature,
    argnums: int | Iterable[int] | None,
    argnames: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of arguments, each made of the other one where it is None.

    Args:
        sig: signature of the function.
        argnums: positions, from 0.
        argnames: names.

    >>> import inspect
    >>> from tracebridge._src import api_util
    >>> api_util.infer_argnums_and_argnames(inspect.signature(lambda x, y: x), 1, None)
    ((1,), ('y',))
    """
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())
    parameters = list(sig.parameters.values())
    places = [(i, p.name) for i, p in enumerate(parameters) if p.kind is p.POSITIONAL_OR_KEYWORD]
    if argnums is None:
        numbers = tuple([i for i, name in places if name in names])
    elif argnames is None:
        names = tuple([name for i, name in places if i in numbers])
    return numbers, names


def to_complex_dtype(dtype: DTypeLike) -> Any:
    """The complex dtype that holds numbers of a dtype.

    Args:
        dtype: a real or complex dtype.

    >>> from tracebridge._src import dtypes
    >>> dtypes.to_complex_dtype("float64")
    dtype('complex128')
    """
    return complex_of(as_dtype(dtype))


def supports_inf(dtype: DTypeLike) -> bool:
    """Whether a dtype has a value for infinity.

    Args:
        dtype: any dtype.

    >>> from tracebridge._src import dtypes
    >>> dtypes.supports_inf("float32"), dtypes.supports_inf("int32")
    (True, False)
    """
    found: Any = as_dtype(dtype)
    return is_inexact(found) and bool(np.isinf(np.array(np.inf).astype(found)))


def prefix_errors(
    prefix_tree: object, full_tree: object, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], TreeMismatchError]]:
    """What is wrong where a tree is no prefix of another one, as functions that make errors.

    Args:
        prefix_tree: the tree whose leaves would stand for whole subtrees.
        full_tree: the other one.
        is_leaf: what counts as a leaf of the prefix.

    Returns:
        A function for each place, of what messages call the prefix.

    >>> from tracebridge._src import tree_util
    >>> [error] = tree_util.prefix_errors((1, [2]), (1, 2))
    >>> print(str(error("in_axes")).splitlines()[0])
    in_axes: ... a subtree against a leaf: in_axes[1] is a list of 1, the full tree[1] is ...int
    """
    found = prefix.prefix_errors(prefix_tree, full_tree, is_leaf)
    return [lambda name, d=d: prefix.mismatch(name, [d], name, "the full tree") for d in found]


def canonicalize_shape(shape: object, context: str = "") -> Shape:
    """A shape as a tuple of Python integers and symbolic dimensions.

    Args:
        shape: a sequence of sizes, or one size.
        context: what messages begin with.

    Raises:
        ShapeMismatchError: a size is negative.

    >>> import numpy as np
    >>> from tracebridge._src import core
    >>> core.canonicalize_shape([2, np.int64(3)])
    (2, 3)
    """
    return as_shape(context or "canonicalize_shape", shape)


def physical_aval(aval: ShapedArray) -> ShapedArray:
    """The type of the numbers that an array of an extended dtype consists of; others as they are.

    Args:
        aval: type of an array.

    >>> import tracebridge as tb
    >>> from tracebridge._src import core
    >>> core.physical_aval(tb.typeof(tb.random.key(0)))
    ShapedArray(uint32[2])
    """
    dtype: Any = aval.dtype
    if not isinstance(dtype, extended.ExtendedDType):
        return aval
    return aval.update(shape=(*aval.shape, *dtype.element_shape), dtype=dtype.element_dtype)


def canonicalize_sharding(
    sharding: NamedSharding | PartitionSpec | None, api_name: str
) -> NamedSharding | None:
    """How an array is divided, as its type says it; None if the type says nothing.

    Args:
        sharding: how it is to be divided; a specification is one of the mesh in force.
        api_name: the function that was given it.

    Raises:
        NoMeshError: a specification is given, and no mesh is in force.

    >>> import tracebridge as tb
    >>> from tracebridge._src import sharding_impls
    >>> sharding_impls.canonicalize_sharding(tb.typeof(1.0).sharding, "map") is None
    True
    """
    if sharding is None:
        return None
    named = named_sharding(api_name, sharding)
    mesh = named.mesh.abstract_mesh
    return None if mesh.empty else NamedSharding(mesh, named.spec)


class ExtendedDType(extended.ExtendedDType):
    """A dtype of users, whose ``_rules`` say what an element of it is stored as."""

    _rules: Any = None

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Shape of what stores one element."""
        return tuple(self._rules.physical_element_aval(self).shape)

    @property
    def element_dtype(self) -> np.dtype[Any]:
        """Dtype of what stores one element."""
        return np.dtype(self._rules.physical_element_aval(self).dtype)


@final
class GlobalState:
    """This process among those of the program: ``distributed.global_state``."""

    __slots__ = ()

    @property
    def process_id(self) -> int:
        """Which of the processes this is; 0 where there are no others."""
        found = connection()
        return 0 if found is None else found.index

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        found = connection()
        return 1 if found is None else found.count

    @property
    def client(self) -> Any:
        """The client of the service by which processes find each other; None without others."""
        found = connection()
        return None if found is None else found.client

    @property
    def coordinator_address(self) -> str | None:
        """Host and port of process 0; None where there are no others."""
        found = connection()
        return None if found is None else found.address


@final
class StartedClients(Mapping[str, Any]):
    """The clients in use by the name of their platform; empty before the first use of a device.

    >>> import tracebridge as tb
    >>> from tracebridge._src import xla_bridge
    >>> tb.devices("cpu")[0].client is xla_bridge._backends["cpu"]
    True
    """

    def __getitem__(self, platform: str) -> Any:
        return self._clients()[platform]

    def __iter__(self) -> Iterator[str]:
        return iter(self._clients())

    def __len__(self) -> int:
        return len(self._clients())

    def _clients(self) -> dict[str, Any]:
        return {backend.platform: backend.client for backend in started()}


global_state = GlobalState()
CLIENTS = StartedClients()
