"""Execution: functions that run a program on Arrays and wrap its results.

The functions are generated: their source depends only on the number of arguments, on which of
them are kept, on the number of results and on the form of the return value, and is compiled once
for each such shape of call. A loop would cost 0.1 to 0.7 us more on each call.

jaxlib captures the stack for every result, and keeps the stacks of dead ones until somebody
collects them: 0.1 to 1 kB for each. So every call collects, which costs less than new memory would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core._jaxlib.xla import collect_garbage
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.lent import can_lend
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracebridge.core.runtime.programs.program import Program

SINGLE, LIST, TUPLE, TREE = "single", "list", "tuple", "tree"
MAX_UNROLLED = 128
_FACTORIES: BoundedCache[Any] = BoundedCache("call templates", 512)


def make_run(
    program: Program[Any],
    n_args: int,
    form: str,
    *,
    committed: bool = False,
    unflatten: Callable[[Any], Any] | None = None,
    star: bool = False,
) -> Callable[..., Any]:
    """``run(*arrays)`` for a program.

    ``form`` of the result: the only Array (SINGLE), a list, a tuple, or ``unflatten(tuple)``
    (TREE). With ``star`` the function takes one sequence of arrays instead of ``n_args``
    positional arguments.
    """
    kept = program.kept
    n_out = len(program.out_avals)
    if max(n_args, n_out) > MAX_UNROLLED:
        return _looped(program, form, committed, unflatten, star)
    key = (n_args, kept, n_out, form, star, len(program.constants))
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    run = factory(
        program.executable.execute_sharded,
        program.handlers(committed),
        program.signatures(committed),
        program.constants,
        object.__new__,
        Array,
        unflatten,
        collect_garbage,
    )
    if can_lend(program):
        run.lends = True  # see core/runtime/arrays/lent.py
    return run


def _compile_factory(
    n_args: int, kept: tuple[int, ...], n_out: int, form: str, star: bool, n_consts: int
) -> Any:
    parameters = "args" if star else ", ".join([f"a{i}" for i in range(n_args)])
    item = "args[{}]._buf" if star else "a{}._buf"
    buffers = [f"c{i}" for i in range(n_consts)] + [item.format(i) for i in kept]
    lines = [
        "def factory(execute, handlers, signatures, constants, new, Array, unflatten, collect):"
    ]
    lines += [f"    c{i} = constants[{i}]" for i in range(n_consts)]
    lines += [f"    s{i} = signatures[{i}]" for i in range(n_out)]
    lines += [f"    def run({parameters}):"]
    call = f"execute([{', '.join(buffers)}]).consume_with_handlers(handlers)"
    if n_out:
        targets = ", ".join([f"o{i}" for i in range(n_out)]) + ","
        lines += [f"        {targets} = {call}"]
    else:
        lines += [f"        {call}"]
    lines += ["        collect()"]
    for i in range(n_out):
        lines += [
            f"        r{i} = new(Array)",
            f"        r{i}._sig = s{i}",
            f"        r{i}._buf = o{i}",
        ]
    results = ", ".join([f"r{i}" for i in range(n_out)])
    lines += [f"        return {_result(form, results, n_out)}", "    return run"]
    scope: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<tracebridge call>", "exec"), scope)  # noqa: S102 - the source is made of integers above
    return scope["factory"]


def _result(form: str, results: str, n_out: int) -> str:
    if form == SINGLE:
        return "r0"
    if form == LIST:
        return f"[{results}]"
    comma = "," if n_out == 1 else ""
    if form == TUPLE:
        return f"({results}{comma})"
    return f"unflatten(({results}{comma}))"


def _looped(
    program: Program[Any], form: str, committed: bool, unflatten: Any, star: bool
) -> Callable[..., Any]:
    execute = program.executable.execute_sharded
    handlers = program.handlers(committed)
    signatures = program.signatures(committed)
    constants = program.constants
    kept = program.kept
    new = object.__new__

    def run(args: Any) -> Any:
        buffers = [args[i]._buf for i in kept]
        results = []
        append = results.append
        outs = execute(constants + buffers).consume_with_handlers(handlers)
        collect_garbage()
        for buf, sig in zip(outs, signatures, strict=False):
            array = new(Array)
            array._sig = sig
            array._buf = buf
            append(array)
        if form == SINGLE:
            return results[0]
        if form == LIST:
            return results
        return tuple(results) if form == TUPLE else unflatten(results)

    if star:
        return run

    def run_positional(*args: object) -> Any:
        return run(args)

    return run_positional
