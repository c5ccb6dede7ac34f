"""What the options of ``to_tf`` and ``save`` say of the artifacts of programs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tracebridge._api.args.values import short_repr
from tracebridge._api.exports.checks import DisabledSafetyCheck
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.tf._xla_call_module import PLATFORMS
from tracebridge.tf.keeping import Write
from tracebridge.tf.loops import module_of
from tracebridge.tf.native import NativeModule

_CHECKS = ("platform",)


def writer(
    call: str,
    native_ops: bool,
    platforms: Sequence[str] | None,
    disabled_checks: Sequence[object],
) -> Write:
    """What makes the artifacts that the options ask for.

    Raises:
        ArgumentSpecError: an option has a value that it does not take, or two exclude each other.
    """
    given = (disabled_checks,) if isinstance(disabled_checks, str) else disabled_checks
    checks = [DisabledSafetyCheck(str(check)) for check in given]
    allowed = [target for check in checks if (target := check.is_custom_call()) is not None]
    others = [str(check) for check in checks if check.is_custom_call() is None]
    disabled = _checked(call, "disabled_checks", others, _CHECKS)
    if platforms is None and not checks:
        return NativeModule if native_ops else module_of
    if native_ops:
        raise ArgumentSpecError(
            f"{call}: native_ops with platforms or disabled_checks",
            expected="one of both: TensorFlow's own operations run wherever it has kernels",
        )
    chosen: tuple[str, ...] = PLATFORMS
    if platforms is not None:
        wanted = _checked(call, "platforms", platforms, (*PLATFORMS, "gpu"))
        gpu = ("cuda", "rocm") if "gpu" in wanted else ()
        # In the order in which programs for several of them number them.
        chosen = tuple([p for p in PLATFORMS if p in {*wanted, *gpu}])
        if not chosen:
            raise ArgumentSpecError(
                f"{call}: platforms is empty", expected=f"some of {', '.join(PLATFORMS)}"
            )
    return functools.partial(
        module_of, platforms=chosen, disabled_checks=disabled, allowed=tuple(allowed)
    )


def _checked(
    call: str, option: str, values: Sequence[str], known: Sequence[str]
) -> tuple[str, ...]:
    given = (values,) if isinstance(values, str) else tuple(values)
    for value in given:
        if value not in known:
            raise ArgumentSpecError(
                f"{call}: {option} contains {short_repr(value)}",
                expected=f"some of {', '.join(known)}",
            )
    return given
