"""A function that counts its traces."""

from __future__ import annotations

from typing import Any


class Counter:
    """A function that counts how often it is traced."""

    def __init__(self, fun: Any) -> None:
        self.fun = fun
        self.traces = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.traces += 1
        return self.fun(*args, **kwargs)
