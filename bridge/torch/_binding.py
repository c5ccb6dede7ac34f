"""How wrapped functions that stand in the body of a class bind to its instances."""

from __future__ import annotations

import functools
from typing import Any, final

import torch
from torch.torch_version import TorchVersion

# torch.compile before 2.12 takes an attribute of an instance that could bind for one of the class,
# and looks for it there.
_MAY_NOT_BIND = TorchVersion(torch.__version__) < "2.12"


def bound(call: Any, instance: Any) -> Any:
    """``call`` as an attribute of an instance; of the class itself where that is None."""
    return call if instance is None else functools.partial(call, instance)


class Binding:
    """A callable that is a method where a class has it, as functions are."""

    if _MAY_NOT_BIND:

        def __set_name__(self, owner: Any, name: str) -> None:
            setattr(owner, name, _Method(self))

    else:

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return bound(self, instance)


@final
class _Method:
    """What stands in the class in the place of a callable that cannot bind itself."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return bound(self._call, instance)
