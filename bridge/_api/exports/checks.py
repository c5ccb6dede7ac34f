"""What an export does not check."""

from __future__ import annotations

from typing import final

from tracebridge.core.util.public_path import public_path

_PLATFORM = "platform"
_CUSTOM_CALL = "custom_call:"


@public_path("tracebridge.export")
@final
class DisabledSafetyCheck:
    """One check that is left out when a function is exported and called. Immutable, hashable.

    Made by ``platform()`` and ``custom_call(target)``.

    >>> from tracebridge import export
    >>> export.DisabledSafetyCheck.custom_call("my_kernel")
    DisabledSafetyCheck.custom_call('my_kernel')
    """

    __slots__ = ("_text",)
    _text: str

    def __init__(self, _impl: str) -> None:
        object.__setattr__(self, "_text", _impl)

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let the program be called on other platforms than those that it was exported for."""
        return cls(_PLATFORM)

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Let the program call ``target_name``, which each process that runs it must register."""
        return cls(_CUSTOM_CALL + target_name)

    def is_custom_call(self) -> str | None:
        """The target that it is about; None if it is about something else."""
        head, found, target = self._text.partition(_CUSTOM_CALL)
        return target if found and not head else None

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"{name} of {self} cannot be set"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        target = self.is_custom_call()
        made = f"{self._text}()" if target is None else f"custom_call({target!r})"
        return f"DisabledSafetyCheck.{made}"

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return DisabledSafetyCheck, (self._text,)
