"""Types of compiled functions, for type checkers and completion; never instantiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from tracebridge.core.aot.stages import Lowered, Traced
    from tracebridge.core.control.calls.cache_info import CacheInfo

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JittedFunction(Protocol[P, R_co]):
    """What ``jit`` gives: called as the function, with methods that stop on the way."""

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the compiled program; the first call for new types traces and compiles."""
        ...

    @overload
    def __get__(self, instance: None, owner: Any = None) -> JittedFunction[P, R_co]: ...

    @overload
    def __get__(
        self: JittedFunction[Concatenate[Any, Q], R_co], instance: object, owner: Any = None
    ) -> JittedFunction[Q, R_co]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method of a class it is bound like one."""
        ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """The traced program for arguments, or for objects with their shapes and dtypes."""
        ...

    def lower(
        self, *args: Any, lowering_platforms: Sequence[str] | None = None, **kwargs: Any
    ) -> Lowered:
        """The program as StableHLO."""
        ...

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The types of the results."""
        ...

    def clear_cache(self) -> None:
        """Forget what was compiled for this function."""
        ...

    def cache_size(self) -> int:
        """How many programs it keeps."""
        ...

    def cache_info(self) -> CacheInfo:
        """Why it was compiled the last time, how often, and which way its calls took."""
        ...


class JitDecorator(Protocol):
    """What ``jit`` gives without a function: it takes the function."""

    def __call__(self, fun: Callable[P, R], /) -> JittedFunction[P, R]:
        """The compiled form of ``fun``."""
        ...
