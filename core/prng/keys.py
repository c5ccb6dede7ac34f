"""Typed keys: arrays whose elements are keys, and the two primitives between them and words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, final

from tracebridge.core.dtypes.dtypes import uint32
from tracebridge.core.dtypes.extended import ExtendedDType, prng_key
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.prng.implementations import IMPLEMENTATIONS, Implementation

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext


@final
class KeyDType(ExtendedDType):
    """The dtype of keys of one generator, such as ``key<fry>``. There is one for each."""

    __slots__ = ("implementation",)

    def __init__(self, implementation: Implementation) -> None:
        self.implementation = implementation

    @property
    def type(self) -> type:
        return prng_key

    @property
    def name(self) -> str:
        return f"key<{self.implementation.tag}>"

    @property
    def element_shape(self) -> tuple[int, ...]:
        return self.implementation.key_shape

    @property
    def element_dtype(self) -> Any:
        return uint32

    def from_blocks(self, blocks: Any) -> Any:
        return random_wrap_p.bind(blocks, impl=self.implementation.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return key_dtype_of, (self.implementation.name,)


KEY_DTYPES = {name: KeyDType(made) for name, made in IMPLEMENTATIONS.items()}


def add_implementation(implementation: Implementation) -> None:
    """Make keys of one more generator known."""
    IMPLEMENTATIONS[implementation.name] = implementation
    KEY_DTYPES[implementation.name] = KeyDType(implementation)


def key_dtype_of(name: str) -> KeyDType:
    """The dtype of the keys of the generator ``name``."""
    return KEY_DTYPES[name]


class _Relabelled(Primitive):
    """The same memory under another type."""

    cost = Cost.MOVES_DATA
    makes_nan = False

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return operands[0]

    def batch(
        self, ctx: BatchContext, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        (x,), (d,) = args, dims
        assert d is not None  # the only operand is batched
        return self.bind(move_batch_axis(x, d, 0), **params), 0


@final
class RandomWrap(_Relabelled):
    """Words ``uint32[..., *key_shape]`` as keys of the generator ``impl``, a name."""

    name = "random_wrap"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        dtype = KEY_DTYPES[params["impl"]]
        n = len(dtype.element_shape)
        if x.dtype != uint32 or x.ndim < n or x.shape[-n:] != dtype.element_shape:
            sizes = ",".join(map(str, dtype.element_shape))
            msg = f"wrap_key_data: got {x.str_short()}, expected u32[...,{sizes}]"
            hint = f"keys of {params['impl']} are made by tracebridge.random.key"
            raise DtypeMismatchError(msg, hint=hint)
        return x.update(x.shape[:-n], dtype, False)


@final
class RandomUnwrap(_Relabelled):
    """The words of keys."""

    name = "random_unwrap"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        (x,) = avals
        if implementation_of(x) is None:
            msg = f"key_data: got {x.str_short()}, expected an array of keys"
            raise ArgumentTypeError(msg, hint="keys are made by tracebridge.random.key")
        return stored(x)


@final
class KeyUse(_Relabelled):
    """Keys as they are; ``use`` is "sample" for the function ``by``, or "clone".

    It is there for ``core/prng/reuse.py``, while the option ``debug_key_reuse`` is on.
    """

    name = "key_use"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        return avals[0]


random_wrap_p = RandomWrap()
key_use_p = KeyUse()
random_unwrap_p = RandomUnwrap()


def implementation_of(aval: ShapedArray) -> Implementation | None:
    """The generator of an array of keys, None for other arrays."""
    dtype = cast("Any", aval.dtype)
    return dtype.implementation if isinstance(dtype, KeyDType) else None
