"""Where backward rules put the cotangents of arguments."""

from __future__ import annotations

import abc
from typing import Any

from tracebridge.core.compat.ad import Zero, add_tangents
from tracebridge.core.ir.user_type import is_user_type
from tracebridge.core.lax.ad_util import add_of_users_p
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.interpreters.ad")
class GradAccum(abc.ABC):
    """The sum of the cotangents of one argument; ``aval`` is their type."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @abc.abstractmethod
    def accum(self, x: Any) -> None:
        """Add a cotangent; None and a ``Zero`` add nothing."""

    @abc.abstractmethod
    def freeze(self) -> Any:
        """The sum, a ``Zero`` if nothing was added."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.aval.str_short()})"


@public_path("tracebridge.interpreters.ad")
class ValAccum(GradAccum):
    """A sum that is a value."""

    __slots__ = ("val",)

    def __init__(self, aval: Any, val: Any = None) -> None:
        super().__init__(aval)
        self.val: Any = Zero(aval) if val is None else val

    def accum(self, x: Any) -> None:
        if x is None or type(x) is Zero:
            return
        if type(self.val) is Zero:
            self.val = x
        elif is_user_type(self.aval):
            self.val = add_of_users_p.bind(self.val, x)
        else:
            self.val = add_tangents(self.val, x)

    def freeze(self) -> Any:
        return self.val


@public_path("tracebridge.interpreters.ad")
class NullAccum(GradAccum):
    """Of an argument that is not differentiated: what is added is thrown away."""

    __slots__ = ()

    def accum(self, x: Any) -> None:
        del x

    def freeze(self) -> Any:
        """A ``Zero``."""
        return Zero(self.aval)
