"""`with` blocks that change one option for the current thread, by name."""

from __future__ import annotations

from tracebridge.core.config.scopes import Scope


def enable_x64(new_val: bool = True) -> Scope:
    """Keep 64-bit dtypes inside the block.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.enable_x64():
    ...     tnp.arange(3.0).dtype
    dtype('float64')
    """
    return Scope("enable_x64", new_val)


def explicit_x64_dtypes(new_val: str) -> Scope:
    """Set what happens to explicit 64-bit dtypes: 'allow', 'warn' or 'error'.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.explicit_x64_dtypes('allow'):
    ...     tnp.zeros(3, 'float64').dtype
    dtype('float64')
    """
    return Scope("explicit_x64_dtypes", new_val)


def numpy_dtype_promotion(new_val: str) -> Scope:
    """Set dtype promotion: 'standard' or 'strict'.

    >>> import tracebridge as tb
    >>> with tb.numpy_dtype_promotion('strict'):
    ...     tb.config.numpy_dtype_promotion
    'strict'
    """
    return Scope("numpy_dtype_promotion", new_val)


def numpy_rank_promotion(new_val: str) -> Scope:
    """Set rank promotion: 'allow', 'warn' or 'raise'.

    >>> import tracebridge as tb
    >>> with tb.numpy_rank_promotion('raise'):
    ...     tb.config.numpy_rank_promotion
    'raise'
    """
    return Scope("numpy_rank_promotion", new_val)


def default_matmul_precision(new_val: str | None) -> Scope:
    """Set the precision of products that name none.

    >>> import tracebridge as tb
    >>> with tb.default_matmul_precision('float32'):
    ...     tb.config.default_matmul_precision
    'float32'
    """
    return Scope("default_matmul_precision", new_val)


def default_device(new_val: object) -> Scope:
    """Set the device of arrays and computations that name none.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.default_device(tb.devices('cpu')[0]):
    ...     tnp.ones(3).device.platform
    'cpu'
    """
    return Scope("default_device", new_val)


def disable_jit(disable: bool = True) -> Scope:
    """Run jitted functions and control flow step by step inside a ``with`` block, for debugging.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def f(x):
    ...     return 'large' if x > 2 else 'small'
    >>> with tb.disable_jit():
    ...     f(3.0)
    'large'
    """
    return Scope("disable_jit", disable)


def debug_nans(new_val: bool = True) -> Scope:
    """Raise when a computation returns a NaN.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> with tb.debug_nans():
    ...     tnp.log(-1.0)
    Traceback (most recent call last):
        ...
    tracebridge.errors.NonFiniteError: ...
    """
    return Scope("debug_nans", new_val)


def debug_infs(new_val: bool = True) -> Scope:
    """Raise when a computation returns an infinity.

    >>> import tracebridge as tb
    >>> with tb.debug_infs():
    ...     tb.config.debug_infs
    True
    """
    return Scope("debug_infs", new_val)


def debug_key_reuse(new_val: bool = True) -> Scope:
    """Raise when a typed random key is used twice: both results would be the same numbers.

    A key is used by the functions that draw numbers from it, and by ``split``. Keys made by
    ``fold_in`` and ``clone`` are new ones. Programs of ``jit``, ``scan``, ``while_loop``, ``cond``
    and ``checkpoint`` are followed equation by equation whenever they are called, so this is slow.
    Words of keys, as ``PRNGKey`` makes them, are not followed.

    >>> import tracebridge as tb
    >>> key = tb.random.key(0)
    >>> with tb.debug_key_reuse():
    ...     x = tb.random.normal(key)
    ...     tb.random.normal(key)
    Traceback (most recent call last):
        ...
    tracebridge.errors.KeyReuseError: normal: the key was used before, by normal ...
    """
    return Scope("debug_key_reuse", new_val)


def checking_leaks(new_val: bool = True) -> Scope:
    """Look for leaked tracers at the end of every trace.

    >>> import tracebridge as tb
    >>> with tb.checking_leaks():
    ...     print(tb.jit(lambda x: x * 2)(1.0))
    2.0
    """
    return Scope("check_tracer_leaks", new_val)


check_tracer_leaks = checking_leaks


def enable_checks(new_val: bool = True) -> Scope:
    """Type-check every Jaxpr that is made.

    >>> import tracebridge as tb
    >>> with tb.enable_checks():
    ...     print(tb.jit(lambda x: x * 2)(1.0))
    2.0
    """
    return Scope("enable_checks", new_val)


def log_compiles(new_val: bool = True) -> Scope:
    """Log when a function is traced and compiled.

    >>> import tracebridge as tb
    >>> with tb.log_compiles():
    ...     tb.config.log_compiles
    True
    """
    return Scope("log_compiles", new_val)


def explain_cache_misses(new_val: bool = True) -> Scope:
    """Log why calls did not find a compiled function.

    >>> import tracebridge as tb
    >>> with tb.explain_cache_misses():
    ...     tb.config.explain_cache_misses
    True
    """
    return Scope("explain_cache_misses", new_val)


def threefry_partitionable(new_val: bool = True) -> Scope:
    """Choose the partitionable form of the threefry generator.

    >>> import tracebridge as tb
    >>> with tb.threefry_partitionable(False):
    ...     tb.config.threefry_partitionable
    False
    """
    return Scope("threefry_partitionable", new_val)


def default_prng_impl(new_val: str) -> Scope:
    """Choose the generator of new random keys.

    >>> import tracebridge as tb
    >>> with tb.default_prng_impl('rbg'):
    ...     tb.config.default_prng_impl
    'rbg'
    """
    return Scope("default_prng_impl", new_val)


def enable_custom_prng(new_val: bool = True) -> Scope:
    """Let ``random.PRNGKey`` make typed keys.

    >>> import tracebridge as tb
    >>> with tb.enable_custom_prng():
    ...     tb.random.PRNGKey(0).dtype
    key<fry>
    """
    return Scope("enable_custom_prng", new_val)


def legacy_prng_key(new_val: str) -> Scope:
    """Choose what happens to words of keys: 'allow', 'warn' (a UserWarning) or 'error'.

    >>> import tracebridge as tb
    >>> with tb.legacy_prng_key('error'):
    ...     tb.random.normal(tb.random.PRNGKey(0))
    Traceback (most recent call last):
        ...
    tracebridge.errors.ArgumentValueError: normal: got words of a key, ...
    """
    return Scope("legacy_prng_key", new_val)


def no_tracing(new_val: bool = True) -> Scope:
    """Raise inside the block when a jitted function is traced: when a call is not in its cache.

    >>> import tracebridge as tb
    >>> f = tb.jit(lambda x: x + 1)
    >>> y = f(1.0)
    >>> with tb.no_tracing():
    ...     print(f(2.0))
    3.0
    """
    return Scope("no_tracing", new_val)


def no_execution(new_val: bool = True) -> Scope:
    """Raise inside the block when a program or an operation is executed on a device.

    >>> import tracebridge as tb
    >>> with tb.no_execution():
    ...     lowered = tb.jit(lambda x: x + 1).lower(1.0)
    """
    return Scope("no_execution", new_val)
