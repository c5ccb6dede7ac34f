"""Checks of results that debugging options ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.config.scopes import option
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.errors.runtime_errors import NonFiniteError

if TYPE_CHECKING:
    from collections.abc import Sequence


def wants_checks() -> bool:
    """Whether debug_nans or debug_infs is on."""
    return option("debug_nans") or option("debug_infs")


def check_finite(arrays: Sequence[Any], name: str) -> None:
    """Raise NonFiniteError if a result of ``name`` has a value that the options forbid."""
    for i, array in enumerate(arrays):
        if not is_inexact(array.dtype):
            continue
        host = array.to_numpy()
        if host.dtype.kind == "V":
            host = host.astype(np.float32)
        for wanted, test, what in (
            ("debug_nans", np.isnan, "NaN"),
            ("debug_infs", np.isinf, "infinity"),
        ):
            if option(wanted) and bool(np.any(test(host))):
                msg = f"result {i} of {name} contains {what} (option {wanted} is on)"
                raise NonFiniteError(msg)
