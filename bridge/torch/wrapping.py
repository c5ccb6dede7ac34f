"""``wrap``: a function of arrays as a differentiable function of torch tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tracebridge._api.args.argnums import check_callable, resolve
from tracebridge._api.args.statics import Splitter, bind_statics, static_key
from tracebridge._derived.families import free_handle
from tracebridge._derived.names import WRAPPED, by_import_path, register
from tracebridge.core.config.state import state
from tracebridge.core.config.values import fast_path_allowed, option, tracing_key
from tracebridge.core.config.wide import at_least
from tracebridge.core.control.calls.traced_call import argument_names
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.tree.tree import flatten, leaf_treedef
from tracebridge.interop.torch_adapter import is_ready, torch_adapter
from tracebridge.interop.trees import import_tree
from tracebridge.numpy.conversion import asarray
from tracebridge.torch._binding import Binding
from tracebridge.torch._casting import Cast, LastCalls, cast, cast_of, is_channels_last
from tracebridge.torch._crossing.dense import on_one_device, ready
from tracebridge.torch._crossing.in_graphs import constant_in_graphs
from tracebridge.torch._crossing.numbers import (
    LARGEST,
    LEAST,
    converted,
    host_tensors,
    leaf_avals,
    number_tensors,
    unusable,
    width,
    width_beside,
)
from tracebridge.torch._crossing.refusals import said_clearly
from tracebridge.torch._crossing.structure import BOOL, COMPLEX, FLOAT, INT, TENSOR, to_text
from tracebridge.torch._drawing import Drawing, Keyed, drawing_of, drawn
from tracebridge.torch._eager import autograd
from tracebridge.torch._eager.entry import MISSED, CallTable, TreeCalls, make_entry, may_remember
from tracebridge.torch._eager.visible import call_seen, function_modes
from tracebridge.torch._graphs.call_family import CallFamily
from tracebridge.torch._graphs.calls import graph_call
from tracebridge.torch._graphs.noted import note_function, noted_function
from tracebridge.torch._graphs.roots import call_structure
from tracebridge.torch._sizes import SizedCalls, Varying, varying_of

_NUMBERS = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX}


def wrap(
    fun: Any,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    rng_argnames: str | Sequence[str] = (),
    dynamic_shapes: Sequence[Any] | None = None,
    buckets: Mapping[str, Sequence[int]] | None = None,
    sizes_argname: str | None = None,
    cast_inputs: torch.dtype | str | None = None,
) -> Wrapped:
    """A function of arrays as a function of torch tensors, with gradients.

    The first call with tensors of new shapes, dtypes or structure traces ``fun`` and compiles it;
    later calls run the compiled program on the tensors' memory, without copies. Results are on
    the device of the tensors. Dtypes are kept, 64-bit ones too, whatever ``enable_x64`` is.

    Everything of torch works on the result: ``backward()``, ``torch.autograd.grad`` of any order,
    ``torch.func``, forward-mode duals, ``torch.compile(fullgraph=True)``, ``torch.export``.
    Under autocast nothing is cast unless ``cast_inputs`` says so: the program computes in the
    dtypes that it gets. ``torch.channels_last`` images enter as they are and give such results.

    Args:
        fun: function of arrays, numbers and trees of them, made of tracebridge operations. It
            must not depend on other tensors than its arguments.
        static_argnums: positions of arguments that are compile-time constants: any hashable
            objects. Each new value compiles again.
        static_argnames: names of such arguments.
        rng_argnames: names of arguments that get a new key of ``tracebridge.random`` at each call,
            drawn from torch's generator of the device, so that ``torch.manual_seed`` makes results
            reproducible. The backward pass has the key of its forward pass. A caller may give
            such an argument: a key, or a ``torch.Generator`` to draw it from.
        dynamic_shapes: for each positional argument None, or which of its sizes vary: a string
            such as ``"n, _"``, a dict ``{axis: name}``, or a tree of those like the argument.
            These axes are padded to a bucket, so that there is one compilation for each bucket
            and not for each size. The function is traced once, at sizes that it does not know,
            and run under a mask, with the results that it has without padding.
        buckets: for a name the sizes that are compiled, beyond them multiples of the last one;
            by default the powers of two.
        sizes_argname: name of an argument of ``fun`` that gets the sizes as a dict. Then nothing
            is masked: the function looks after the padding, which repeats the last entries.
        cast_inputs: dtype that tensors of floats, float64 excepted, are cast to in a region of
            ``torch.autocast``, as by ``torch.amp.custom_fwd``; ``"autocast"`` for that of the
            region. Gradients have the dtypes that the tensors had.

    Returns:
        A function with the arguments of ``fun``. Other arguments than static ones are tensors,
        NumPy arrays, Arrays, Python numbers, None, and trees of them. Python numbers are weakly
        typed scalars: a new value does not compile again.

    Raises:
        ArgumentSpecError: ``fun`` has no such argument, or ``dynamic_shapes`` does not fit.
        MissingRuleError: in a call with ``dynamic_shapes``, an operation cannot be masked.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> norm = tracebridge.torch.wrap(lambda x: tnp.sqrt(tnp.sum(x * x)))
    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> norm(x).backward()
    >>> x.grad
    tensor([0.6000, 0.8000])
    """
    if torch.compiler.is_dynamo_compiling():
        # The graph is for all sizes where torch lets it be.
        return _wrap_in_graph(fun, static_argnums, static_argnames, rng_argnames, cast_inputs)
    check_callable("wrap", fun)
    # () means "not given": what is missing is then derived from the other.
    nums = None if static_argnums == () else static_argnums
    names = None if static_argnames == () else static_argnames
    more = Options(
        drawing_of("wrap", fun, rng_argnames),
        varying_of("wrap", dynamic_shapes, buckets, sizes_argname),
        cast_of("wrap", cast_inputs),
    )
    return Wrapped(fun, *resolve("wrap", fun, "static", nums, names), more)


def _wrap_in_graph(
    fun: Any, static_argnums: Any, static_argnames: Any, rng_argnames: Any, cast_inputs: Any
) -> Any:
    """``wrap`` in code that torch compiles. Dynamo reads these lines."""
    torch._dynamo.comptime.comptime(note_function)  # pyright: ignore[reportAttributeAccessIssue] - see in_graphs.py
    root = _wrapped_once(static_argnums, static_argnames, rng_argnames, cast_inputs)
    drawing = _drawing_of(root)

    def call(*args: Any, **kwargs: Any) -> Any:
        if drawing:
            args, kwargs = drawn(drawing, args, kwargs)
        if cast_inputs is not None:
            args, kwargs = cast(Cast(cast_inputs), args, kwargs)
        return graph_call(root, args, kwargs)

    return call


@constant_in_graphs
def _drawing_of(root: str) -> Any:
    return WRAPPED[root].more.drawing


@constant_in_graphs
def _wrapped_once(
    static_argnums: Any, static_argnames: Any, rng_argnames: Any, cast_inputs: Any
) -> str:
    """The name of a function that compiled code wraps, which is noted already.

    It is made while torch compiles the code, and lives as long as the graph.
    """
    fun = noted_function()
    made = wrap(
        fun,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        rng_argnames=rng_argnames,
        cast_inputs=cast_inputs,
    )
    _IN_GRAPHS.append(made)
    return made.root


_IN_GRAPHS: list[Wrapped] = []


class Options(NamedTuple):
    """What else ``wrap`` was told."""

    drawing: Drawing = ()
    varying: Varying | None = None
    cast: Cast | None = None


class Wrapped(Binding):
    """What ``wrap`` returns. Call it with tensors; ``traces`` counts how often it was traced."""

    # What calls leave is not in ``__dict__``: ``functools.wraps`` copies that, also in code that
    # torch compiles, where Dynamo has to understand all of it.
    __slots__ = ("calls", "entries", "families", "last_calls", "lock", "sized", "splitter",
                 "tree_calls")  # fmt: skip

    def __init__(
        self, fun: Any, nums: tuple[int, ...], names: tuple[str, ...], more: Options | None = None
    ) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        # What is traced, with words in the place of keys.
        self.more = Options() if more is None else more
        self.body = Keyed(fun, self.more.drawing) if self.more.drawing else fun
        self.is_plain = self.more == Options()
        varying = self.more.varying
        self.last_calls = LastCalls(wrap)
        self.sized = None if varying is None else SizedCalls(varying, wrap)
        self.static = nums, names
        self.splitter = Splitter("wrap", fun, nums, names)
        self.root = register(self, fun)
        self.traces = 0
        self.has_warned = False  # about sizes that vary
        self.lock = threading.RLock()
        # Calls whose arguments are all plain tensors, by dtypes and shapes; see _eager/entry.py.
        self.calls = CallTable(self.__name__)
        self.entries: dict[int, Any] = {}
        self.tree_calls = TreeCalls(self.__name__)
        # (structure, statics) and kinds of leaves -> family
        self.families: dict[Any, CallFamily] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_plain:
            return self.prepare_and_call(args, kwargs)
        if torch.compiler.is_compiling() and (
            torch.compiler.is_dynamo_compiling() or not _is_traced(args, kwargs)
        ):
            return graph_call(self.root, args, kwargs)
        try:
            if kwargs:
                return self.eager(args, kwargs)
            try:
                entry = self.entries[len(args)]
            except KeyError:
                entry = make_entry(len(args), self.calls, self.eager)
                self.entries[len(args)] = entry
            return entry(*args)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def prepare_and_call(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call with further options; Dynamo reads these lines."""
        drawing = self.more.drawing
        if torch.compiler.is_dynamo_compiling():
            if drawing:
                args, kwargs = drawn(drawing, args, kwargs)
            if self.more.cast is not None:
                args, kwargs = cast(self.more.cast, args, kwargs)
            return graph_call(self.root, args, kwargs)
        if function_modes() and not torch.compiler.is_compiling():
            return call_seen(self, args, kwargs)
        try:
            if drawing:
                args, kwargs = drawn(drawing, args, kwargs)
            if self.more.cast is not None:
                args, kwargs = cast(self.more.cast, args, kwargs)
            if _is_traced(args, kwargs):
                return self.fun(*args, **kwargs)
            if torch.compiler.is_compiling():
                return graph_call(self.root, args, kwargs)
            if self.sized is not None and not _has_proxy(args, kwargs):
                done, outs = self.sized.call(self, args, kwargs)
                if done:
                    return outs
            return self.eager(args, kwargs)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __repr__(self) -> str:
        return f"<torch function {self.root} of {self.fun!r}>"

    def of(self, fun: Any, kept: tuple[int, ...] = ()) -> Wrapped:
        """Another function with the same arguments, wrapped likewise; ``kept``: see ``Cast``."""
        how = self.more.cast
        more = self.more._replace(cast=None if how is None else how._replace(kept=kept))
        return Wrapped(fun, *self.static, more)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The function of the dynamic arguments, and what they are called."""
        static, dynamic, _ = self.splitter.layout(len(args))
        named = {k: v for k, v in kwargs.items() if k in self.splitter.names}
        fun = bind_statics(self.body, len(args), static, [args[i] for i in static], named)
        return fun, self.splitter.parameters.only(dynamic)

    def __deepcopy__(self, memo: dict[int, Any]) -> Wrapped:
        return self

    def __reduce__(self) -> Any:
        module, qualname = self.__module__, getattr(self, "__qualname__", None)
        if module and qualname and by_import_path(module, qualname) is self:
            return by_import_path, (module, qualname)
        return _rewrap, (self.fun, *self.static, self.more)

    def fingerprinted(self) -> Any:
        """What counts where a callback refers to it."""
        return self.fun, self.static, self.more

    # eager ---------------------------------------------------------------------------------------

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call outside graphs."""
        if function_modes() and not torch.compiler.is_compiling():
            return call_seen(self, args, kwargs)
        leaves, key = self.key_of(args, kwargs)
        outs = self.known(leaves, key)
        if outs is not MISSED:
            return outs
        if any([isinstance(leaf, Tracer) for leaf in leaves]):
            # Inside another traced function there are no tensors: it is just the function.
            return self.fun(*args, **kwargs)
        proxies = [leaf for leaf in leaves if isinstance(leaf, torch.fx.Proxy)]
        if proxies:
            # torch.fx.symbolic_trace: a node of its graph.
            return proxies[0].tracer.create_proxy("call_function", self, args, kwargs)
        leaves, kinds = self.classify(leaves, key)
        family = self.family(args, kwargs, key, tuple(kinds))
        if autograd.is_special():
            outs = self.through_operator(family, leaves)
            if leaves and autograd.transforms_active() and not family.has_numbers:
                found = autograd.levels_of(family).anywhere, family
                self.table(family, key, len(leaves), args, kwargs).families[len(leaves)] = found
            return outs
        pairs = zip(leaves, kinds, strict=True)
        dense = [x if k != TENSOR or is_ready(x) else None for x, k in pairs]
        if any([x is None for x in dense]):
            last = [i for i, x in enumerate(leaves) if is_channels_last(x)]
            if last and not option("disable_jit"):
                return self.last_calls.call(self, args, kwargs, leaves, last)
            pairs = zip(leaves, kinds, strict=True)
            dense = [x if k != TENSOR else ready(x) for x, k in pairs]
            if any([x is None for x in dense]):
                return self.through_operator(family, leaves)
        if option("disable_jit") and not _wants_gradients(dense):
            with at_least(width_beside([x.dtype for x in dense if isinstance(x, torch.Tensor)])):
                return self.step_by_step(args, kwargs)
        dense = on_one_device(dense)
        call_key: Any = tuple(
            [(x.dtype, x.shape, x.device) if k == TENSOR else width(x) for x, k in
             zip(dense, kinds, strict=True)]
        )  # fmt: skip
        if state() is not None:
            call_key = (call_key, tracing_key(), fast_path_allowed())
        compiled = family.runs.get(call_key)
        if compiled is None:
            avals = leaf_avals(dense, kinds)
            numbers = tuple([k != TENSOR for k in kinds])
            compiled = autograd.compile_for(family, dense, avals, numbers, call_key)
        outs = autograd.apply_compiled(compiled, dense)
        out_tree = compiled.jaxpr.cache["torch results"]
        if may_remember():
            table = self.table(family, key, len(dense), args, kwargs)
            self.remember(dense, compiled, out_tree, table)
        return out_tree.unflatten(outs)

    def known(self, leaves: list[Any], key: Any) -> Any:
        """The results of a call that is on the shortest path for trees; MISSED if it is not."""
        try:
            entry = self.tree_calls.entries.get(key)
        except TypeError:
            return MISSED  # a static argument, of which ``family`` words the error
        return MISSED if entry is None else entry(*leaves)

    def table(
        self, family: CallFamily, key: Any, n: int, args: Any, kwargs: dict[str, Any]
    ) -> CallTable:
        """Where calls of a family of ``n`` leaves are remembered."""
        if not kwargs and not self.static[0] and family.is_flat:
            return self.calls
        return self.tree_calls.table(key, n)

    def remember(self, leaves: list[Any], compiled: Any, out_tree: Any, table: CallTable) -> None:
        """Put a call of plain tensors on the shortest path.

        Those of a GPU are found by the check of torch alone, which looks at devices.
        """
        if not all([type(x) in autograd.EXACT for x in leaves]):
            return
        call = compiled, None if out_tree == leaf_treedef else out_tree.unflatten
        if all([x.device.type == "cpu" for x in leaves]):
            table.add(tuple([part for x in leaves for part in (x.dtype, x.shape)]), call)
        elif leaves and table is self.calls:
            table.guard(len(leaves), leaves, call)

    def key_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """Leaves of the dynamic arguments, and their structure with the key of the statics."""
        if not self.static[0] and not self.static[1]:
            leaves, tree = flatten((args, kwargs))
            return leaves, (tree, ())
        static, dynamic, _ = self.splitter.layout(len(args))
        names = self.splitter.names
        # The number of arguments tells calls apart whose static values agree.
        key = (
            len(args),
            *[static_key(args[i]) for i in static],
            *[(k, static_key(kwargs[k])) for k in sorted(kwargs) if k in names],
        )
        dynamic_args = tuple([args[i] for i in dynamic])
        leaves, tree = flatten((dynamic_args, {k: v for k, v in kwargs.items() if k not in names}))
        return leaves, (tree, key)

    def classify(self, leaves: list[Any], key: Any) -> tuple[list[Any], list[str]]:
        """The leaves as tensors and Python numbers, and what each is.

        Raises:
            UnsupportedDtypeError: names the argument that is neither.
            IntegerRangeError: 64 bits do not hold an integer.
        """
        kinds: list[str] = []
        result: list[Any] = []
        hosts = False
        for i, leaf in enumerate(leaves):
            kind, value = _NUMBERS.get(type(leaf), TENSOR), leaf
            if kind == TENSOR and not isinstance(leaf, torch.Tensor):
                kind, value = converted(leaf)
                hosts = hosts or value is leaf
            if not kind or (kind == INT and not LEAST <= value <= LARGEST):
                raise self.unusable(leaf, i, key)
            kinds.append(kind)
            result.append(value)
        return host_tensors(result) if hosts else result, kinds

    def unusable(self, leaf: Any, index: int, key: Any) -> Exception:
        """The error for a leaf that is neither tensor nor number of 64 bits."""
        tree, statics = key
        # Without static arguments all positional ones are in the tree.
        n = statics[0] if statics else len(tree.children()[0].children())
        parameters = self.splitter.parameters.only(self.splitter.layout(n)[1])
        name = argument_names(tree, parameters)[index]
        return unusable(self.__name__, name, leaf)

    def family(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, kinds: tuple[str, ...]
    ) -> CallFamily:
        """The family of this structure, these statics and these kinds of leaves."""
        try:
            cached = self.families.get((key, kinds))
        except TypeError:
            # Words the error of a static argument that is not hashable.
            self.splitter.arguments(args, kwargs)
            raise
        if cached is None:
            with self.lock:
                cached = self.families.get((key, kinds))
                if cached is None:
                    made = self.make_family(args, kwargs, key[0], kinds)
                    cached = self.families[key, kinds] = made
        return cached

    def make_family(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tree: Any, kinds: tuple[str, ...]
    ) -> CallFamily:
        """A new family; its handle says everything that another process needs to make it."""
        static = self.splitter.layout(len(args))[0]
        named = {k: v for k, v in kwargs.items() if k in self.splitter.names}
        fun, parameters = self.bound(args, kwargs)
        text = to_text(call_structure(tree, kinds, args, static, named))
        handle = free_handle(f"{self.root}|{text}")
        return CallFamily(handle, self, fun, tree, kinds, parameters)

    def through_operator(self, family: CallFamily, leaves: Sequence[Any]) -> Any:
        """A call on tensors that are more than memory, or under a mode of torch."""
        is_plain = leaves and not family.has_numbers
        xs = leaves if is_plain else number_tensors(leaves, family.kinds)
        with said_clearly(name_of(self.fun), xs):
            outs = autograd.call(family, xs)
        return family.tree_for(xs, len(outs)).unflatten(outs)

    def step_by_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """With the option disable_jit: the function itself, on Arrays.

        Calls with gradients are compiled all the same: a backward pass needs the program.
        """
        given, named = import_tree((args, kwargs), torch_adapter)
        outs, out_tree = flatten(self.body(*given, **named))
        # A result may be an argument or a constant itself, whose memory is not its own.
        return out_tree.unflatten([torch_adapter.export(asarray(x)).clone() for x in outs])


def _is_traced(args: Any, kwargs: Any) -> bool:
    """Whether the call is in another traced function, which torch knows nothing of."""
    return any([isinstance(leaf, Tracer) for leaf in flatten((args, kwargs))[0]])


def _has_proxy(args: Any, kwargs: Any) -> bool:
    return any([isinstance(leaf, torch.fx.Proxy) for leaf in flatten((args, kwargs))[0]])


def _wants_gradients(leaves: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(
        [isinstance(x, torch.Tensor) and x.requires_grad for x in leaves]
    )


def _rewrap(fun: Any, nums: tuple[int, ...], names: tuple[str, ...], more: Options) -> Wrapped:
    return Wrapped(fun, nums, names, more)
