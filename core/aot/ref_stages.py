"""Mutable references in the stages of a jitted function: what they add to its program.

The program has the contents of references among its arguments, those of closed-over references
behind them, and the last contents of written references behind its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.aot.abstract import signature_of
from tracebridge.core.control.calls.traced_call import Arguments, TracedCall, argument_names
from tracebridge.core.control.refs.calls import RefCall, RefUses, ref_arguments
from tracebridge.core.control.refs.cells import AbstractRef
from tracebridge.core.control.refs.ref import Ref, content_to_pass, has_refs, outer_refs
from tracebridge.core.errors.ref_errors import RefError
from tracebridge.core.errors.runtime_errors import ArgumentMismatchError
from tracebridge.core.errors.tracer_errors import UnexpectedTracerError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.programs.debug import wants_checks


def contents_of_references(call: str, args: Arguments) -> list[tuple[str, Ref]]:
    """Put contents in place of the references among the arguments; gives these with names.

    A ``ShapeDtypeStruct`` may stand for a reference; it is none of those with a name.
    """
    stand_ins = {
        i: x.update(is_ref=False)
        for i, x in enumerate(args.leaves)
        if type(x) is ShapeDtypeStruct and x.is_ref
    }
    if not stand_ins and not has_refs(args.leaves):
        return []
    args.leaves = [stand_ins.get(i, x) for i, x in enumerate(args.leaves)]
    passed = ref_arguments(args, call, argument_names(args.tree, args.parameters))
    args.refs = tuple(sorted({*args.refs, *stand_ins}))
    return passed


def check_references(call: str, traced: TracedCall, passed: Sequence[tuple[str, Ref]]) -> None:
    """Raise RefError for a reference that is passed twice, or passed and closed over."""
    if traced.refs is not None:
        RefCall(call, traced.refs, passed)


def shown_avals(args: Arguments, avals: Sequence[Any]) -> tuple[Any, ...]:
    """The types of the arguments, where ``avals`` are those of contents."""
    if not args.refs:
        return tuple(avals)
    return tuple([AbstractRef(a) if i in args.refs else a for i, a in enumerate(avals)])


def donated_inputs(args: Arguments, uses: RefUses | None) -> tuple[int, ...]:
    """The inputs whose memory the program may use: donated ones and contents that it writes."""
    if uses is None:
        return args.donated
    places = zip(args.refs, uses.written, strict=True) if args.refs else ()
    written = [i for i, changed in places if changed]
    targets = {id(ref) for ref in uses.captured_written}
    n = len(args.leaves)
    written += [n + k for k, ref in enumerate(uses.captured) if id(ref) in targets]
    return tuple(sorted({*args.donated, *written}))


def captured_signatures(call: str, uses: RefUses | None, fallback: Any) -> list[Any]:
    """Where the contents of closed-over references are.

    Raises:
        UnexpectedTracerError: a reference belongs to a program that is being traced.
    """
    captured = [] if uses is None else uses.captured
    if not outer_refs(captured):
        raise UnexpectedTracerError(
            f"{call}: the function uses references of an enclosing trace, so that it has no "
            "program of its own"
        )
    values = [content_to_pass(ref) for ref in captured]
    return [signature_of(v, v.aval, fallback) for v in values]


def call_with_references(
    call: str,
    args: Arguments,
    uses: RefUses,
    leaves: Sequence[object],
    check: Callable[[Sequence[Any]], list[Any]],
    run: Callable[[list[Array]], list[Any]],
) -> list[Any]:
    """Run a compiled program at ``leaves``, some of them references; gives its flat results.

    ``check`` gives the arguments as values, ``run`` all results for all inputs.

    Raises:
        ArgumentMismatchError: an array is given where the program was compiled for a reference,
            or the program would run on the contents of a program that is being traced.
        RefError: a reference is passed twice, or passed and closed over.
    """
    arrays_of_call = Arguments(args.fun, list(leaves), args.tree, parameters=args.parameters)
    passed = contents_of_references(call, arrays_of_call)
    if arrays_of_call.refs != args.refs:
        raise _other_places(call, args, arrays_of_call)
    used = RefCall(call, uses, passed)
    values, places = used.consumed(check(arrays_of_call.leaves))
    if any([isinstance(v, Tracer) for v in values]):
        raise ArgumentMismatchError(
            f"{call}: it uses references while a function is traced, but a compiled program runs "
            "on concrete arrays only",
            hint="call the jitted function itself inside transformations",
        )
    if wants_checks():
        # A check may refuse the results: the contents must not be gone then.
        for i in places:
            values[i] = lax.copy(values[i])
    outs = run([to_array(v) for v in values])
    return list(used.write_back(outs, fresh=True))


def _other_places(call: str, args: Arguments, got: Arguments) -> Exception:
    """The error of references where arrays are expected, or the other way round."""
    wanted = set(args.refs)
    for i, leaf in enumerate(got.leaves):
        if i in wanted and i not in got.refs:
            name = argument_names(args.tree, args.parameters)[i]
            aval: ShapedArray = as_value(leaf).aval
            return ArgumentMismatchError(
                f"{call}: argument {name} is {aval.str_short()}, but the program was compiled "
                "for a reference",
                hint="pass tracebridge.new_ref(array): what the program writes would be lost",
            )
    extra = [i for i in got.refs if i not in wanted]
    name = argument_names(args.tree, args.parameters)[extra[0]]
    return RefError(
        call=call,
        got=f"a reference as argument {name}",
        expected="an array, for which the program was compiled",
        hint="pass its content ref[...], or compile the program for a reference",
    )
