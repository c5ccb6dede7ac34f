"""Every option, in one table, with its type, default, variable and meaning.

At most 30 options: a new one must replace a choice that the engine could make itself.
Values live in `values`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tracebridge.core.config import env
from tracebridge.core.config.guard_levels import LEVELS, normal_guard
from tracebridge.core.errors.config_errors import OptionValueError


class Option:
    """One row: what the option is called, takes and changes."""

    __slots__ = (
        "accepts",
        "affects_tracing",
        "choices",
        "default",
        "doc",
        "env",
        "leaves_fast_path",
        "name",
        "normalize",
        "optional",
        "scoped",
        "type",
    )

    def __init__(
        self,
        name: str,
        type: type,
        default: Any,
        doc: str,
        *,
        affects_tracing: bool = False,
        leaves_fast_path: bool = False,
        scoped: bool = True,
        optional: bool = False,
        choices: tuple[str, ...] = (),
        normalize: Callable[[str], str] | None = None,
        accepts: Callable[[Any], bool] | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.doc = doc
        self.env = env.PREFIX + name.upper()
        self.affects_tracing = affects_tracing
        """A change gives other Jaxprs, so the value is part of every cache key."""
        self.leaves_fast_path = leaves_fast_path
        """Another value than the default needs the checked way of calling compiled functions."""
        self.scoped = scoped
        """A `with` block may change it for one thread; others can only be changed globally."""
        self.optional = optional
        """None is a value."""
        self.choices = choices
        self.normalize = normalize
        """Gives the normal form of a value that is not among the choices, or raises ValueError."""
        self.accepts = accepts
        """Whether a device, which is not among the choices, is a value too."""

    def __repr__(self) -> str:
        return f"Option({self.name}, default={self.default!r})"

    def check(self, value: object) -> Any:
        """Return the value in its normal form (0 and 1 become bools).

        Raises:
            OptionValueError: if the type or the choice is wrong.
        """
        if value is None and self.optional:
            return None
        if self.type is bool and isinstance(value, int) and value in (0, 1):
            return bool(value)
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        fits = self.type is object or (
            isinstance(value, self.type) and not (self.type is int and isinstance(value, bool))
        )
        if self.choices:
            chosen = isinstance(value, str) and value in self.choices
            fits = fits and (chosen or (self.accepts is not None and self.accepts(value)))
        if fits:
            hash(value)  # values become parts of cache keys
            return value
        if isinstance(value, str) and self.normalize is not None:
            try:
                return self.normalize(value)
            except ValueError:
                pass
        kinds = " or ".join(map(repr, self.choices)) or self.type.__name__
        if self.accepts is not None:
            kinds = f"a device or {kinds}"
        raise OptionValueError(
            call=f"option {self.name}",
            got=f"{value!r} of type {type(value).__name__}",
            expected=f"{kinds} or None" if self.optional else kinds,
        )

    def parse(self, text: str) -> Any:
        """Return the value of an environment variable's text.

        Raises:
            OptionValueError: if the text is not a value of this option.
        """
        try:
            if self.optional and text.strip().lower() in ("", "none"):
                return None
            value: Any = text
            if self.type is bool:
                value = env.parse_bool(text)
            elif self.type is int:
                value = int(text)
            elif self.type is float:
                value = float(text)
        except ValueError as exc:
            raise OptionValueError(
                f"environment variable {self.env}={text!r} is not a {self.type.__name__}"
            ) from exc
        return self.check(value)

    def initial(self) -> Any:
        """Return the value at import: the environment variable, or the default."""
        text = env.get(self.env)
        if text is not None:
            return self.parse(text)
        if self.name == "num_cpu_devices":
            return env.forced_host_device_count() or self.default
        if self.name == "traceback_filtering" and env.full_tracebacks():
            return "off"
        return self.default


MATMUL_PRECISIONS: Final = (
    "default",
    "high",
    "highest",
    "bfloat16",
    "bfloat16_3x",
    "tensorfloat32",
    "float32",
    "ANY_F8_ANY_F8_F32",
    "ANY_F8_ANY_F8_F32_FAST_ACCUM",
    "ANY_F8_ANY_F8_ANY",
    "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16",
    "F16_F16_F32",
    "BF16_BF16_BF16",
    "BF16_BF16_F32",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9",
    "TF32_TF32_F32",
    "TF32_TF32_F32_X3",
    "F32_F32_F32",
    "F64_F64_F64",
)
"""What `default_matmul_precision` takes: precision names and dot algorithm names."""

PLATFORMS: Final = ("cpu", "gpu", "cuda", "rocm", "tpu")
"""Platforms that can be named without a device."""


def is_device(value: object) -> bool:
    """Whether ``value`` is a device of jaxlib."""
    return hasattr(value, "platform") and hasattr(value, "client")


_ROWS = (
    Option("enable_x64", bool, False, "64-bit dtypes are kept and are the defaults.",
           affects_tracing=True),
    Option("explicit_x64_dtypes", str, "warn",
           "What happens to a 64-bit dtype that is asked for by name while enable_x64 is off: "
           "kept (allow), truncated with a warning (warn), or refused (error).",
           affects_tracing=True, choices=("allow", "warn", "error")),
    Option("numpy_dtype_promotion", str, "standard",
           "Dtypes of operands are promoted by the lattice (standard) or must agree (strict).",
           affects_tracing=True, choices=("standard", "strict")),
    Option("numpy_rank_promotion", str, "allow",
           "What happens when operands of different rank are broadcast together.",
           affects_tracing=True, choices=("allow", "warn", "raise")),
    Option("default_matmul_precision", str, None,
           "Precision of matrix products and convolutions that do not name one.",
           affects_tracing=True, optional=True, choices=MATMUL_PRECISIONS),
    Option("default_device", object, None,
           "Device, or platform name, of arrays and computations that name none.",
           affects_tracing=True, optional=True, choices=PLATFORMS, accepts=is_device),
    Option("disable_jit", bool, False,
           "jit and control flow run Python code step by step.",
           affects_tracing=True, leaves_fast_path=True),
    Option("debug_nans", bool, False, "A computation that returns a NaN raises.",
           leaves_fast_path=True),
    Option("debug_infs", bool, False, "A computation that returns an infinity raises.",
           leaves_fast_path=True),
    Option("debug_key_reuse", bool, False,
           "A random key that is used a second time raises.",
           affects_tracing=True, leaves_fast_path=True),
    Option("check_tracer_leaks", bool, False,
           "The end of every trace looks for tracers that are still referenced.",
           leaves_fast_path=True),
    Option("enable_checks", bool, False, "Every Jaxpr is type-checked when it is made."),
    Option("traceback_filtering", str, "auto",
           "'off' shows the engine's frames in tracebacks, 'tracebackhide' marks them for IPython "
           "and pytest, which hide them; the others remove them. "
           "TRACEBRIDGE_TRACEBACK=full means 'off'.",
           scoped=False,
           choices=("auto", "remove_frames", "quiet_remove_frames", "tracebackhide", "off")),
    Option("log_compiles", bool, False, "Log a line when a function is traced and compiled."),
    Option("explain_cache_misses", bool, False, "Log why a call did not find a compiled function."),
    Option("cpu_async_dispatch", bool, False,
           "CPU computations return before they end. Read when the CPU backend starts.",
           scoped=False),
    Option("num_cpu_devices", int, 1,
           "Number of CPU devices. Read when the CPU backend starts; XLA_FLAGS="
           "--xla_force_host_platform_device_count=N sets its default.",
           scoped=False),
    Option("platforms", str, "",
           "Comma-separated platforms to start, best first; empty means all that are found.",
           scoped=False),
    Option("compilation_cache_dir", str, None,
           "Folder of the persistent compilation cache; None turns it off. What is in it is run: "
           "nobody else may write there.",
           scoped=False, optional=True),
    Option("persistent_cache_min_compile_time_secs", float, 0.05,
           "Seconds that a compilation must take for its executable to be kept in that folder.",
           scoped=False),
    Option("threefry_partitionable", bool, True,
           "The threefry generator splits its counters so that it can be partitioned.",
           affects_tracing=True),
    Option("default_prng_impl", str, "threefry2x32",
           "Generator of new random keys.",
           affects_tracing=True, choices=("threefry2x32", "rbg", "unsafe_rbg")),
    Option("platform_rules", bool, True,
           "Programs for one platform are lowered by the rules that make them faster there. Off, "
           "each primitive becomes its plain operation: to find out whether a rule is at fault.",
           affects_tracing=True),
    Option("disable_most_optimizations", bool, False,
           "XLA hardly optimises programs: they compile faster and run slower, which pays where "
           "each runs once, as in tests.",
           affects_tracing=True),
    Option("enable_custom_prng", bool, False,
           "tracebridge.random.PRNGKey makes typed keys, as key does.",
           affects_tracing=True),
    Option("legacy_prng_key", str, "allow",
           "What happens to words of keys that are passed for a typed key.",
           affects_tracing=True, choices=("allow", "warn", "error")),
    Option("source_locations", bool, True,
           "Equations remember the line that made them, for messages and profiles.",
           scoped=False),
    Option("transfer_guard", str, "allow",
           "What happens when an array moves between host and devices, or between devices: one "
           "level for all, or host_to_device=..., device_to_device=..., device_to_host=....",
           leaves_fast_path=True, choices=LEVELS, normalize=normal_guard),
    Option("no_tracing", bool, False, "Raise when a jitted function is traced."),
    Option("no_execution", bool, False, "Raise when a program or an operation is executed.",
           leaves_fast_path=True),
)  # fmt: skip

OPTIONS: Final[dict[str, Option]] = {row.name: row for row in _ROWS}
"""The table, by name."""

TRACING_OPTIONS: Final = tuple(row.name for row in _ROWS if row.affects_tracing)
"""Names of the options whose values belong to every cache key, in a fixed order."""
