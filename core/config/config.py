"""The public object `config`: read and change options by name.

The names of the peer library are taken too (`jax_enable_x64`), so that code can be moved over.
"""

from __future__ import annotations

import importlib
from typing import Any

from tracebridge.core.config import flags, values, wide
from tracebridge.core.config.fixed import is_fixed, read_fixed, update_fixed
from tracebridge.core.config.options import OPTIONS
from tracebridge.core.errors import filtering
from tracebridge.core.errors.config_errors import UnknownOptionError
from tracebridge.core.errors.filtering import api_boundary, hide_internal_frames

_PEER_PREFIX = "jax_"
_PEER_NAMES = {
    "cpu_enable_async_dispatch": "cpu_async_dispatch",
    "platform_name": "platforms",
    "include_full_tracebacks_in_locations": "source_locations",
    "x64_enabled": "enable_x64",
}


def resolve_name(name: str) -> str:
    """Return our name of an option from ours or the peer's.

    Raises:
        UnknownOptionError: with the closest names.
    """
    plain = name.removeprefix(_PEER_PREFIX)
    plain = _PEER_NAMES.get(plain, plain)
    if plain in OPTIONS:
        return plain
    difflib = importlib.import_module("difflib")  # for errors only
    close = difflib.get_close_matches(plain, OPTIONS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"one of {', '.join(OPTIONS)}"
    raise UnknownOptionError(f"there is no option {name!r}", hint=hint)


class Config:
    """Options of the package.

    Reading an attribute gives the value in force in this thread; `update` changes it for all
    threads. For one block of one thread use a scope such as `tb.enable_x64(True)`.
    """

    __slots__ = ()

    @api_boundary
    def update(self, name: str, value: object) -> None:
        """Change an option for all threads.

        Raises:
            UnknownOptionError: if there is no such option.
            OptionValueError: if the value is not one of its choices.
        """
        plain = name.removeprefix(_PEER_PREFIX)
        if is_fixed(plain):
            update_fixed(plain, value)
            return
        ours = resolve_name(name)
        if ours == "transfer_guard" and value is None:
            value = "allow"  # the peer spells its default None
        values.update(ours, value)

    @api_boundary
    def read(self, name: str) -> Any:
        """Return the value in force in this thread."""
        plain = name.removeprefix(_PEER_PREFIX)
        return (
            read_fixed(plain) if is_fixed(plain) else wide.told(values.option(resolve_name(name)))
        )

    def config_with_absl(self) -> None:
        """Let absl define a flag for each option, such as ``--jax_enable_x64``.

        The options change when absl parses the command line.

        Raises:
            ModuleNotFoundError: absl is not installed.
        """
        flags.define()

    def parse_flags_with_absl(self) -> None:
        """Take options from the command line now, whatever other flags there are.

        Raises:
            ModuleNotFoundError: absl is not installed.
            OptionValueError: the text of a flag is no value of its option.
        """
        flags.parse()

    def __getattr__(self, name: str) -> Any:
        try:
            if name.startswith("__"):
                raise AttributeError(name)
            return self.read(name)
        except Exception as error:
            hide_internal_frames(error)
            raise

    @api_boundary
    def __setattr__(self, name: str, value: object) -> None:
        resolve_name(name)
        raise UnknownOptionError(
            f"config.{name} cannot be assigned to",
            hint=f"use config.update({name!r}, {value!r})",
        )

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *OPTIONS})

    @property
    def values(self) -> dict[str, Any]:
        """The global values, as a new dict: by name, and by the name that the peer gives it."""
        plain = self._by_name()
        return plain | {f"{_PEER_PREFIX}{name}": value for name, value in plain.items()}

    def _by_name(self) -> dict[str, Any]:
        return {name: values.global_value(name) for name in OPTIONS}

    def __repr__(self) -> str:
        rows = "\n".join(f"  {name} = {value!r}" for name, value in self._by_name().items())
        return f"Config(\n{rows}\n)"


config = Config()
"""The one instance."""


@values.on_global_change
def _set_filtering(name: str, value: Any) -> None:
    """The errors layer lies below and cannot read options, so it is told."""
    if name == "traceback_filtering":
        filtering.set_mode(value)


filtering.set_mode(values.option("traceback_filtering"))
