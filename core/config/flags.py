"""Options from flags of the command line, for programs that read their flags with absl."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tracebridge.core.config import values
from tracebridge.core.config.options import OPTIONS

# The peer's first, so that commands can be moved over.
PREFIXES = ("jax_", "tracebridge_")


def define() -> None:
    """Define a flag for each option; absl gives their values to `take` when it has parsed.

    Raises:
        ModuleNotFoundError: absl is not installed.
    """
    flags = importlib.import_module("absl.flags")
    if PREFIXES[0] + next(iter(OPTIONS)) in flags.FLAGS:
        return
    for name, option in OPTIONS.items():
        kind = flags.DEFINE_bool if option.type is bool else flags.DEFINE_string
        for prefix in PREFIXES:
            kind(prefix + name, None, option.doc, module_name="tracebridge")
    importlib.import_module("absl.app").call_after_init(take)


def take() -> None:
    """Change the options whose flags are given.

    Raises:
        OptionValueError: the text of a flag is no value of its option.
    """
    given: Any = importlib.import_module("absl.flags").FLAGS
    for name, option in OPTIONS.items():
        for prefix in PREFIXES:
            flag = given[prefix + name]
            if flag.present:
                value = flag.value
                values.update(name, option.parse(value) if isinstance(value, str) else value)


def parse() -> None:
    """Read the flags that are on the command line, without touching other ones.

    Raises:
        ModuleNotFoundError: absl is not installed.
        OptionValueError: the text of a flag is no value of its option.
    """
    define()
    importlib.import_module("absl.flags").FLAGS(sys.argv, known_only=True)
    take()
