"""What Dynamo finds in our functions. It is not imported here, which would take over a second.

Where a graph is being made, torch has imported Dynamo, so that lines which only Dynamo reads, or
that are for symbolic sizes only, reach its functions through the package ``torch``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def constant_in_graphs(function: F) -> F:
    """Mark a function that runs while a graph is made, and whose results are built into it.

    torch's own mark, ``torch.compiler.assume_constant_result``, imports Dynamo.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess] - torch looks for it
    return function
