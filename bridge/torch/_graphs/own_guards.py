"""Guards of compiled code on what this package is made of.

Dynamo reads the lines of a wrapped call, and guards on each function, module and constant that they
name, forty of them for the simplest call. Nobody changes these, and looking takes each call of the
compiled code longer than a guard on all its tensors. Lists that do change are called
``..._OF_PROCESS``.
"""

from __future__ import annotations

from typing import Any

_OURS = "__import_tracebridge_dot_torch_dot_"  # how sources call the modules of this package
_CHANGES = "_OF_PROCESS"


def drop_own_guards(context: Any) -> None:
    """Called by Dynamo in the place of the line that names it, at the end of a wrapped call."""
    tx = context._i_will_not_complain_if_bc_breaks_InstructionTranslator()
    # No part of torch's interface. Where it is otherwise the guards stay.
    guards: Any = getattr(tx.output, "guards", None)
    if not (hasattr(guards, "clear") and hasattr(guards, "update")):
        return
    kept = [g for g in guards if not _is_of_our_code(getattr(g, "originating_source", None))]
    if len(kept) < len(guards):
        guards.clear()
        guards.update(kept)


def _is_of_our_code(source: Any) -> bool:
    """Whether a value is found from a module of ours, and does not change."""
    base = source
    while hasattr(base, "base"):
        if str(getattr(base, "member", "")).endswith(_CHANGES):
            return False
        base = base.base
    return str(getattr(base, "global_name", "")).startswith(_OURS)
