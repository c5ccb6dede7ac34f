"""Programs of ``torch.export`` for one mode of a module: inputs checked, run, results named."""

from __future__ import annotations

import functools
import threading
import warnings
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import torch
from torch._decomp import decomposition_table
from torch.export import ExportedProgram, default_decompositions, export
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as torch_trees

from tracebridge._api.programs.jit import jit
from tracebridge.core.config.wide import INTEGERS, Width, at_least
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.interop.torch_adapter import DTYPES, torch_adapter
from tracebridge.torch._graphs.saved import IN_GRAPHS
from tracebridge.torch._translate.graphs import Graph
from tracebridge.torch._translate.numbers import cast
from tracebridge.torch._translate.table import KEYED_TABLE, TABLE
from tracebridge.torch._translate.whole import KeptWhole

_NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_DETACH = torch.ops.aten.detach.default
_RENORM = torch.ops.aten.embedding_renorm.default

# What torch keeps while it traces belongs to the process, not to a thread.
_TRACING = threading.RLock()


@contextmanager
def _tracing() -> Iterator[None]:
    """A block in which torch makes a graph that is translated here: it needs no programs inside."""
    token = IN_GRAPHS.set(False)
    try:
        with _TRACING, warnings.catch_warnings():
            # Of attributes of recurrent modules that are assigned while they are traced.
            warnings.simplefilter("ignore")
            yield
    finally:
        IN_GRAPHS.reset(token)


def exported(
    label: str, module: torch.nn.Module, args: Any, kwargs: Any, dynamic_shapes: Any
) -> ExportedProgram:
    """The program of a module at example arguments.

    Raises:
        ExportError: torch cannot export it.
    """
    try:
        with _tracing(), KeptWhole():
            return export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:
        text = str(error).strip().split("\n\n")[0]
        raise ExportError(
            f"from_module({label}): torch.export failed: {type(error).__name__}: {text}",
            hint="control flow and shapes may not depend on values; check example_args and "
            "dynamic_shapes, or call the module by call_torch",
        ) from error


def _keep_no_grad(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """Cut derivatives behind blocks of ``no_grad``, which decomposition would forget."""
    cuts: list[torch.fx.Node] = []
    for node in list(graph.nodes):
        if node.target is not _NO_GRAD or node.args[0] is not False:
            continue
        for user in list(node.users):
            value = user.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            with graph.inserting_after(user):
                cut = graph.call_function(_DETACH, (user,))
            cut.meta = dict(user.meta)
            user.replace_all_uses_with(cut, lambda n, cut=cut: n is not cut)
            cuts.append(cut)
    return cuts


def _trained_through_norms(graph: torch.fx.Graph) -> None:
    """Let derivatives through the rows of embeddings that torch shortens in place, unseen by it."""
    for node in graph.find_nodes(op="call_function", target=_RENORM):
        source = node.args[0]
        while isinstance(source, torch.fx.Node) and source.target is _DETACH:
            source = source.args[0]
        node.args = (source, *node.args[1:])


def decomposed(label: str, program: ExportedProgram) -> ExportedProgram:
    """The program in operators that have a translation, as far as torch can take it apart.

    Raises:
        ExportError: torch fails at it.
    """
    cuts = _keep_no_grad(program.graph)
    rules = default_decompositions()
    for target, rule in decomposition_table.items():
        if isinstance(target, torch._ops.OpOverload):
            rules.setdefault(target, rule)
    for target in (*TABLE, *KEYED_TABLE):
        rules.pop(target, None)
    try:
        with _tracing():
            result = program.run_decompositions(rules)
    except Exception as error:
        text = str(error).strip().split("\n\n")[0]
        raise ExportError(
            f"from_module({label}): torch cannot take the program apart: "
            f"{type(error).__name__}: {text}",
            hint="call the module, or the part that does this, by call_torch",
        ) from error
    finally:
        for cut in cuts:
            (source,) = cut.all_input_nodes
            cut.replace_all_uses_with(source)
            program.graph.erase_node(cut)
    _trained_through_norms(result.graph)
    return result


@final
class Program:
    """A program that maps parameters, buffers and inputs to outputs and new buffers."""

    def __init__(self, label: str, program: ExportedProgram, names: Mapping[str, str]) -> None:
        """``names``: the first name of each parameter and buffer that has several."""
        self.label = label
        program = decomposed(label, program)
        self._graph = Graph(label, program.graph_module)
        self._in_spec = program.call_spec.in_spec
        self._out_spec: Any = program.call_spec.out_spec
        self._width: Width = _width_of(program.graph)
        self._specs = program.graph_signature.input_specs
        self._sources = [names.get(s.target or "", s.target or "") for s in self._specs]
        self._constants = {
            name: torch_adapter.import_(value.detach())
            for name, value in program.constants.items()
            if isinstance(value, torch.Tensor)
        }
        self._ranges = dict(program.range_constraints)
        self._examples = [n.meta.get("val") for n in self._graph.inputs]
        self._out_specs = self._without_shortened_rows(program.graph_signature.output_specs)
        self._mutated: list[str] = []
        # Tokens of effects come first; what they keep in order are checks, which are left out.
        self._n_tokens = sum(s.kind is OutputKind.TOKEN for s in self._out_specs)
        self._out_specs = self._out_specs[self._n_tokens :]
        for spec in self._out_specs:
            if spec.kind is OutputKind.BUFFER_MUTATION:
                self._mutated.append(names.get(spec.target or "", spec.target or ""))
            elif spec.kind not in {OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT}:
                raise ExportError(
                    f"from_module({label}): the module writes to its "
                    f"{'input' if 'INPUT' in spec.kind.name else 'parameter'} {spec.target}",
                    hint="write to a clone, or keep what changes in a buffer",
                )
        self._results = [
            s.arg.value if isinstance(s.arg, ConstantArgument) else None
            for s in self._out_specs[len(self._mutated) :]
        ]
        body = self._run
        self._compiled = jit(_named(body, label))

    def _without_shortened_rows(self, specs: Sequence[Any]) -> list[Any]:
        """The outputs without rows of embeddings that each call shortens to their largest norm."""
        pairs = [
            (spec, result)
            for spec, result in zip(specs, self._graph.results, strict=True)
            if spec.kind is not OutputKind.PARAMETER_MUTATION
            or getattr(result, "target", None) is not _RENORM
        ]
        self._graph.results = [result for _, result in pairs]
        return [spec for spec, _ in pairs]

    @property
    def draws(self) -> bool:
        """Whether a call needs a key."""
        return bool(self._graph.draws)

    @property
    def mutated(self) -> Sequence[str]:
        """The buffers that a call changes."""
        return self._mutated

    def __call__(
        self,
        params: Mapping[str, Any],
        buffers: Mapping[str, Any],
        key: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Any, dict[str, Any]]:
        inputs = self._inputs(args, kwargs)
        with at_least(self._width):  # for rules of derivatives, which run when a trace calls this
            outs, new = self._compiled(dict(params), dict(buffers), key, inputs)
        leaves = [r if o is None else o for o, r in zip(outs, self._results, strict=True)]
        result = torch_trees.tree_unflatten(leaves, self._out_spec)
        return _with_named_tuples(result), {**buffers, **new}

    def _run(self, params: Any, buffers: Any, key: Any, inputs: Any) -> Any:
        arrays = iter(inputs)
        values: list[Any] = []
        with at_least(self._width):
            for spec, source, example in zip(
                self._specs, self._sources, self._examples, strict=True
            ):
                if spec.kind is InputKind.PARAMETER:
                    value = self._state("params", params, source)
                elif spec.kind is InputKind.BUFFER:
                    value = self._state("buffers", buffers, source)
                elif spec.kind is InputKind.CONSTANT_TENSOR:
                    value = self._constants[source]
                elif spec.kind in {InputKind.TOKEN, InputKind.CUSTOM_OBJ}:
                    value = None  # a generator, in the place of which there is the key
                elif isinstance(spec.arg, ConstantArgument):
                    value = spec.arg.value
                else:
                    value = next(arrays)
                if isinstance(example, torch.Tensor) and spec.kind is not InputKind.TOKEN:
                    value = cast(as_value(value), DTYPES[example.dtype])
                values.append(value)
            results = self._graph.run(values, key)[self._n_tokens :]
        n = len(self._mutated)
        new = dict(zip(self._mutated, results[:n], strict=True))
        outs = [
            None if isinstance(s.arg, ConstantArgument) else r
            for s, r in zip(self._out_specs[n:], results[n:], strict=True)
        ]
        return outs, new

    def _state(self, which: str, given: Mapping[str, Any], name: str) -> Any:
        if name not in given:
            raise ArgumentSpecError(
                f"{self.label}: {which} has no {name!r}",
                expected=f"a dict with the names of model.{which}",
            )
        return given[name]

    def _inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arrays among the arguments, checked against the program."""
        spec_of_all: Any = self._in_spec
        names: Any = spec_of_all.child(1).context or ()
        if set(names) == set(kwargs):  # in the order of the program
            kwargs = {name: kwargs[name] for name in names}
        leaves, spec = torch_trees.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self._in_spec:
            raise TreeMismatchError(
                f"{self.label}: the arguments are not like example_args",
                expected=f"the structure {self._in_spec}",
                got=f"{spec}",
            )
        specs = [s for s in self._specs if s.kind is InputKind.USER_INPUT]
        examples = self._examples[len(self._examples) - len(specs) :]
        sizes: dict[str, Any] = {}
        inputs: list[Any] = []
        for i, (leaf, one, example) in enumerate(zip(leaves, specs, examples, strict=True)):
            where = f"{self.label}: argument {i} ({getattr(one.arg, 'name', '')})"
            if isinstance(one.arg, ConstantArgument):
                if leaf is not one.arg.value and leaf != one.arg.value:
                    raise ArgumentSpecError(
                        f"{where} is {leaf!r}; the program was made with {one.arg.value!r}",
                        hint="call from_module again for another value",
                    )
                continue
            value = leaf
            if isinstance(leaf, torch.Tensor):
                value = torch_adapter.import_(leaf.detach())
            if isinstance(example, torch.Tensor):
                value = as_value(value)
                self._check(where, value, example, sizes)
            inputs.append(value)
        self._check_related(examples, sizes)
        return inputs

    def _check_related(self, examples: Sequence[Any], sizes: Mapping[str, Any]) -> None:
        """Check sizes that are computed from others, such as ``2*s0``."""
        for example in examples:
            for want in example.shape if isinstance(example, torch.Tensor) else ():
                if not isinstance(want, torch.SymInt) or want.node.expr.is_symbol:
                    continue
                have = sizes.get(str(want))
                known = {s: sizes.get(str(s)) for s in want.node.expr.free_symbols}
                if not all([isinstance(n, int) for n in (have, *known.values())]):
                    continue
                if want.node.expr.subs(known) != have:
                    sources = ", ".join([f"{s} = {n}" for s, n in known.items()])
                    raise ArgumentSpecError(
                        f"{self.label}: an argument has size {have} where {sources}",
                        expected=f"{want}",
                        hint="the sizes are related as dynamic_shapes of from_module say",
                    )

    def _check(self, where: str, x: Any, example: torch.Tensor, sizes: dict[str, Any]) -> None:
        """Check shape and kind of an array against those of the program."""
        dtype = DTYPES[example.dtype]
        order = "biufc"
        kinds = [("f" if d.kind == "V" else d.kind).replace("u", "i") for d in (x.dtype, dtype)]
        if order.find(kinds[0]) > order.find(kinds[1]):
            raise ArgumentSpecError(f"{where} has dtype {x.dtype}", expected=f"{dtype}")
        wanted = tuple(example.shape)
        fits = len(wanted) == x.ndim
        for have, want in zip(x.shape, wanted, strict=False):
            if isinstance(want, torch.SymInt):
                known = sizes.setdefault(str(want), have)
                fits = fits and known == have and self._in_range(want, have)
            else:
                fits = fits and have == want
        if not fits:
            shape = ", ".join(map(str, wanted))
            raise ArgumentSpecError(
                f"{where} has shape {tuple(x.shape)}",
                expected=f"({shape})",
                hint="name the sizes that change in dynamic_shapes of from_module",
            )

    def _in_range(self, size: torch.SymInt, have: Any) -> bool:
        bounds = self._ranges.get(size.node.expr)
        if bounds is None or not isinstance(have, int):
            return True
        # Torch writes 2 for any lower bound: it looks at 0 and 1 apart.
        low = 0 if bounds.lower <= 2 else bounds.lower
        return bool(low <= have <= bounds.upper)


def _named(fun: Any, name: str) -> Any:
    def program(params: Any, buffers: Any, key: Any, inputs: Any) -> Any:
        return fun(params, buffers, key, inputs)

    program.__name__ = program.__qualname__ = name
    return program


def _is_torch_result(x: object) -> bool:
    """Whether ``x`` is what ``torch.max`` and the like give, which is no tuple to others."""
    return hasattr(type(x), "n_sequence_fields")


@functools.cache
def _named_tuple_of(kind: Any) -> Any:
    # Its fields are known now only, so there is no class statement that could give them types.
    fields = kind.__match_args__
    return namedtuple(kind.__name__, fields)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]


def _with_named_tuples(result: Any) -> Any:
    """Results with named tuples in the place of torch's, so that they can be traced."""
    return torch_trees.tree_map(
        lambda x: _named_tuple_of(type(x))(*x) if _is_torch_result(x) else x,
        result,
        is_leaf=_is_torch_result,
    )


def _width_of(graph: torch.fx.Graph) -> Width:
    """How wide the numbers of a graph are: torch has said so for each of them."""
    for node in graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, list | tuple) else [values]:
            if isinstance(value, torch.Tensor) and value.dtype in {torch.float64, torch.complex128}:
                return True
    return INTEGERS
