"""The error value: what failed first, as arrays, and how to say it in words.

A *site* is a place in a program where something can fail. Its number is the error's ``code``; 0
means that nothing failed. The numbers for its message travel in *lanes*: one array for each shape
and dtype, and each further payload of that type, shared by all sites. So an error has few arrays,
however many sites there are, and loops can carry it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np

from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.check_errors import CheckError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Sequence


Category = type[CheckError]


class Lane(NamedTuple):
    """The type of a payload, and how many payloads of that type the same site has before it."""

    shape: tuple[Any, ...]
    dtype: np.dtype[Any]
    position: int


Layout = tuple[Lane, ...]


class Site(NamedTuple):
    """Where a program can fail: kind of error, message, line of the user, types of the payload.

    ``template`` is formatted with the arguments ``(args, kwargs)`` of structure ``tree``, whose
    leaves are the payload.
    """

    category: Category
    template: str
    line: str
    lanes: Layout
    tree: Any

    def message(self, payload: Sequence[object]) -> str:
        """The message for the numbers that were found."""
        # Arrays, as the check was given: what a template asks of them is theirs to answer.
        args, kwargs = self.tree.unflatten([as_value(p) for p in payload])
        text = self.template.format(*args, **kwargs)
        return f"{text} [{self.line}]" if self.line else text


Sites = tuple[Site, ...]


@public_path("tracebridge.experimental.checkify")
@final
class Error:
    """The result of the checks of a function: empty, or what failed first.

    A pytree, so that it can be returned from ``jit`` and ``vmap``. Under ``vmap`` it holds one
    error for each element of the batch.

    >>> from tracebridge.experimental import checkify
    >>> print(checkify.init_error.get())
    None
    """

    __slots__ = ("_code", "_lanes", "_layout", "_sites")

    def __init__(self, code: Any, lanes: tuple[Any, ...], layout: Layout, sites: Sites) -> None:
        self._code = code
        self._lanes = lanes
        self._layout = layout
        self._sites = sites

    def get(self) -> str | None:
        """The message of the first failure, or None. For a batch, a line for each failure."""
        found = self._found()
        if found is None:
            return None
        return "\n".join(
            [
                f"at mapped index {', '.join(map(str, index))}: {text}" if index else text
                for index, _, text in found
            ]
        )

    def get_exception(self) -> CheckError | None:
        """The first failure as an exception, or None."""
        found = self._found()
        return None if found is None else found[0][1](self.get() or "")

    def throw(self) -> None:
        """Raise the first failure, if there is one.

        Raises:
            CheckError: a check failed; the subclass says of which kind.
        """
        error = self.get_exception()
        if error is not None:
            raise error

    def _found(self) -> list[tuple[tuple[int, ...], Category, str]] | None:
        """Index in the batch, kind and message of each failure."""
        if not self._sites:
            return None  # nothing is checked, which is known while tracing too
        code = np.asarray(self._code)
        if not code.any():
            return None
        lanes = [_for_message(x) for x in self._lanes]
        found: list[tuple[tuple[int, ...], Category, str]] = []
        for row in np.argwhere(code != 0):
            index = tuple([int(i) for i in row])
            site = self._sites[int(code[index]) - 1]
            payload = [lanes[self._layout.index(lane)][index] for lane in site.lanes]
            found.append((index, site.category, site.message([_for_message(p) for p in payload])))
        return found

    def __repr__(self) -> str:
        if isinstance(self._code, Array | np.ndarray | np.generic):
            return f"Error({self.get()})"
        return f"Error({self._code})"

    def parts(self) -> tuple[Any, tuple[Any, ...], Layout, Sites]:
        """Code, lanes, their types, sites."""
        return self._code, self._lanes, self._layout, self._sites


def _for_message(x: Any) -> Any:
    """A payload as NumPy prints it; keys print themselves."""
    return x if isinstance(x, Array) and is_extended(x.aval.dtype) else np.asarray(x)


def _flatten(error: Error) -> tuple[tuple[Any, ...], tuple[Layout, Sites]]:
    code, lanes, layout, sites = error.parts()
    return (code, *lanes), (layout, sites)


def _unflatten(aux: tuple[Layout, Sites], leaves: Any) -> Error:
    code, *lanes = leaves
    return Error(code, tuple(lanes), *aux)


register_pytree_node(Error, _flatten, _unflatten)

init_error = Error(np.int32(0), (), (), ())
