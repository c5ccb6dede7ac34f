"""``wrap``: a function of arrays as a differentiable function of torch tensors."""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge._api.argnums import check_callable, resolve
from tracebridge._api.statics import Splitter, bind_statics, static_key
from tracebridge.core.config.scopes import fast_path_allowed, option, state, tracing_key
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.dtypes import complex64, complex128, float32, float64, int32, int64
from tracebridge.core.dtypes.dtypes import bool_
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.transfer import put_numpy
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaf_treedef, leaves_with_path
from tracebridge.interop.torch_adapter import TORCH_DTYPES, torch_adapter
from tracebridge.torch import _eager, _operator
from tracebridge.torch._entry import make_entry
from tracebridge.torch._programs import FIND_ROOT, Avals, Family, pin, register_root
from tracebridge.torch._structure import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    TENSOR,
    describe,
    from_text,
    rebuild,
    to_text,
)

_WRAPPED: weakref.WeakValueDictionary[str, Wrapped] = weakref.WeakValueDictionary()
_NAMES = threading.Lock()
MAX_CALLS = 4096
_NUMBERS = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX}
_INT32 = range(-(2**31), 2**31)


def wrap(
    fun: Any,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
) -> Wrapped:
    """A function of arrays as a function of torch tensors, with gradients.

    The first call with tensors of new shapes, dtypes or structure traces ``fun`` and compiles it;
    later calls run the compiled program on the tensors' memory, without copies. Results are on
    the device of the tensors. Dtypes are kept, 64-bit ones too, whatever ``enable_x64`` is.

    Everything of torch works on the result: ``backward()``, ``torch.autograd.grad`` of any order,
    ``torch.func``, forward-mode duals, ``torch.compile(fullgraph=True)``, ``torch.export``.
    Under autocast nothing is cast: the program computes in the dtypes that it gets.

    Args:
        fun: function of arrays, numbers and trees of them, made of tracebridge operations. It
            must not depend on other tensors than its arguments.
        static_argnums: positions of arguments that are compile-time constants: any hashable
            objects. Each new value compiles again.
        static_argnames: names of such arguments.

    Returns:
        A function with the arguments of ``fun``. Other arguments than static ones are tensors,
        NumPy arrays, Arrays, Python numbers, None, and trees of them. Python numbers are weakly
        typed scalars: a new value does not compile again.

    Raises:
        ArgumentSpecError: ``fun`` has no such argument.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> norm = tracebridge.torch.wrap(lambda x: tnp.sqrt(tnp.sum(x * x)))
    >>> x = torch.tensor([3.0, 4.0], requires_grad=True)
    >>> norm(x).backward()
    >>> x.grad
    tensor([0.6000, 0.8000])
    """
    check_callable("wrap", fun)
    nums = static_argnums if isinstance(static_argnums, int) else tuple(static_argnums)
    names = static_argnames if isinstance(static_argnames, str) else tuple(static_argnames)
    static = resolve("wrap", fun, "static", nums or None if nums != 0 else 0, names or None)
    return Wrapped(fun, *static)


@final
class CallFamily(Family):
    """A wrapped function at one argument structure and one choice of static arguments.

    ``kinds`` says per leaf whether it is a tensor or which kind of Python number.
    """

    __slots__ = ("fun", "in_tree", "is_flat", "kinds", "name_", "out_trees", "owner")

    def __init__(
        self, handle: str, owner: Wrapped, fun: Any, in_tree: Any, kinds: tuple[str, ...]
    ) -> None:
        super().__init__(handle)
        self.owner = weakref.ref(owner)
        self.fun = fun
        self.in_tree = in_tree
        self.kinds = kinds
        # Whether the leaves are the positional arguments themselves.
        self.is_flat = in_tree == flatten((tuple(kinds), {}))[1]
        self.name_ = owner.__name__
        # (dtype, rank) of each input -> structure of the results, for graphs of torch.
        self.out_trees: dict[Any, Any] = {}
        register_root(self)

    @property
    def name(self) -> str:
        return self.name_

    def build(self, avals: Avals) -> Jaxpr:
        typed = [
            a if kind == TENSOR else a.update(weak_type=kind != BOOL)
            for a, kind in zip(avals, self.kinds, strict=True)
        ]
        owner = self.owner()
        if owner is not None:
            owner.traces += 1
        flat_fun = FlatFun(self.fun, self.in_tree, self.name_)
        trees: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            outs, out_tree = flat_fun.call(*xs)
            trees.append(out_tree)
            return outs

        debug = DebugInfo(self.name_, where_is(self.fun), self.argument_names())
        jaxpr = stage(flat, typed, debug)
        for const in jaxpr.consts:
            if isinstance(const, Tracer):
                const.trace.check_leak(const) if hasattr(const.trace, "check_leak") else None
        jaxpr.cache["torch results"] = trees[0]
        self.out_trees[tuple([(str(a.dtype), a.ndim) for a in avals])] = trees[0]
        return jaxpr

    def argument_names(self) -> tuple[str, ...]:
        """Names of the leaves for messages."""
        positional, keywords = self.in_tree.unflatten(range(len(self.kinds)))
        names = [f"args{keystr(path)}" for path, _ in leaves_with_path(positional)]
        return (*names, *[f"kwargs{keystr(path)}" for path, _ in leaves_with_path(keywords)])


class Wrapped:
    """What ``wrap`` returns. Call it with tensors; ``traces`` counts how often it was traced."""

    def __init__(self, fun: Any, nums: tuple[int, ...], names: tuple[str, ...]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        self.static = nums, names
        self.splitter = Splitter("wrap", fun, nums, names)
        self.root = _register(self, fun)
        self.traces = 0
        self.lock = threading.RLock()
        # Calls whose arguments are all plain tensors, by dtypes and shapes; see __call__.
        self.calls: dict[Any, tuple[Any, Any]] = {}
        self.entries: dict[int, Any] = {}
        # (structure, statics) and kinds of leaves -> family
        self.families: dict[Any, CallFamily] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return graph_call(self.root, self.static, args, kwargs)
        if not kwargs:
            try:
                entry = self.entries[len(args)]
            except KeyError:
                entry = self.entries[len(args)] = make_entry(len(args), self.calls, self.eager)
            return entry(*args)
        return self.eager(args, kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<torch function {self.root} of {self.fun!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Wrapped:
        return self

    def __reduce__(self) -> Any:
        module, _, qualname = self.root.partition(":")
        if _by_import_path(module, qualname) is self:
            return _by_import_path, (module, qualname)
        return _rewrap, (self.fun, *self.static)

    # eager ---------------------------------------------------------------------------------------

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call outside graphs."""
        leaves, key = self.key_of(args, kwargs)
        if any([isinstance(leaf, Tracer) for leaf in leaves]):
            # Inside another traced function there are no tensors: it is just the function.
            return self.fun(*args, **kwargs)
        leaves, kinds = self.classify(leaves, key)
        family = self.family(args, kwargs, key, tuple(kinds))
        if _eager.is_special():
            return self.through_operator(family, leaves)
        dense = [x if k != TENSOR else _eager.ready(x) for x, k in zip(leaves, kinds, strict=True)]
        if any([x is None for x in dense]):
            return self.through_operator(family, leaves)
        if option("disable_jit"):
            return self.step_by_step(args, kwargs)
        dense = _on_one_device(dense)
        call_key: Any = tuple(
            [(x.dtype, x.shape, x.device) if k == TENSOR else _width(x) for x, k in
             zip(dense, kinds, strict=True)]
        )  # fmt: skip
        if state() is not None:
            call_key = (call_key, tracing_key(), fast_path_allowed())
        compiled = family.runs.get(call_key)
        if compiled is None:
            avals = leaf_avals(dense, kinds)
            numbers = tuple([k != TENSOR for k in kinds])
            compiled = _eager.compile_for(family, dense, avals, numbers, call_key)
        outs = _eager.apply_compiled(compiled, dense)
        out_tree = compiled.jaxpr.cache["torch results"]
        if not kwargs and not self.static[0] and state() is None and family.is_flat:
            self.remember(dense, compiled, out_tree)
        return out_tree.unflatten(outs)

    def remember(self, leaves: list[Any], compiled: Any, out_tree: Any) -> None:
        """Put a call of plain tensors on the CPU on the shortest path."""
        if all([type(x) in _eager.EXACT and x.device.type == "cpu" for x in leaves]):
            if len(self.calls) >= MAX_CALLS:
                self.calls.clear()
            key = tuple([part for x in leaves for part in (x.dtype, x.shape)])
            self.calls[key] = compiled, None if out_tree == leaf_treedef else out_tree.unflatten

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
        given = tuple([args[i] for i in dynamic])
        leaves, tree = flatten((given, {k: v for k, v in kwargs.items() if k not in names}))
        return leaves, (tree, key)

    def classify(self, leaves: list[Any], key: Any) -> tuple[list[Any], list[str]]:
        """The leaves as tensors and Python numbers, and what each is.

        Raises:
            UnsupportedDtypeError: names the argument that is neither.
        """
        kinds: list[str] = []
        result: list[Any] = []
        for i, leaf in enumerate(leaves):
            kind = _NUMBERS.get(type(leaf), TENSOR)
            if kind == TENSOR and not isinstance(leaf, torch.Tensor):
                kind, leaf = _convert(leaf)
                if kind == "":
                    raise self.unusable(leaves[i], i, key)
            kinds.append(kind)
            result.append(leaf)
        return result, kinds

    def unusable(self, leaf: Any, index: int, key: Any) -> UnsupportedDtypeError:
        """The error for a leaf that is neither tensor nor number."""
        tree = key[0].unflatten(range(key[0].num_leaves))
        names = [f"args{keystr(p)}" for p, _ in leaves_with_path(tree[0])]
        names += [f"kwargs{keystr(p)}" for p, _ in leaves_with_path(tree[1])]
        msg = (
            f"{self.__name__}: {names[index]} is {leaf!r} of type {type(leaf).__name__}; "
            "arguments are tensors, arrays, numbers, and trees of them"
        )
        return UnsupportedDtypeError(
            msg, hint="mark it static (static_argnums, static_argnames) if it is a constant"
        )

    def family(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, kinds: tuple[str, ...]
    ) -> CallFamily:
        """The family of this structure, these statics and these kinds of leaves."""
        try:
            found = self.families.get((key, kinds))
        except TypeError:
            # Words the error of a static argument that is not hashable.
            self.splitter.arguments(args, kwargs)
            raise
        if found is None:
            with self.lock:
                found = self.families.get((key, kinds))
                if found is None:
                    made = self.make_family(args, kwargs, key[0], kinds)
                    found = self.families[key, kinds] = made
        return found

    def make_family(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tree: Any, kinds: tuple[str, ...]
    ) -> CallFamily:
        """A new family; its handle says everything that another process needs to make it."""
        static, _, _ = self.splitter.layout(len(args))
        named = {k: v for k, v in kwargs.items() if k in self.splitter.names}
        constants = [args[i] for i in static]
        fun = bind_statics(self.fun, len(args), static, constants, named)
        positional, keywords = tree.unflatten(kinds)
        text = to_text(_handle_structure(positional, keywords, args, static, named))
        return CallFamily(f"{self.root}|{text}", self, fun, tree, kinds)

    def through_operator(self, family: CallFamily, leaves: list[Any]) -> Any:
        """A call on tensors that are more than memory, or under a mode of torch."""
        xs = number_tensors(leaves, family.kinds)
        outs = _eager.call(family, xs)
        return _out_tree(family, xs).unflatten(outs)

    def step_by_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """With the option disable_jit: the function itself, on Arrays; without gradients."""
        from_torch = lambda x: torch_adapter.import_(x) if isinstance(x, torch.Tensor) else x  # noqa: E731
        leaves, tree = flatten((args, kwargs))
        given, named = tree.unflatten([from_torch(x) for x in leaves])
        outs, out_tree = flatten(self.fun(*given, **named))
        return out_tree.unflatten([torch_adapter.export(x) for x in outs])


def _convert(leaf: Any) -> tuple[str, Any]:
    """A leaf that is no tensor as (kind, tensor or number); kind "" if it is unusable."""
    if type(leaf) is Array:
        return TENSOR, torch_adapter.export(leaf)
    if isinstance(leaf, np.ndarray | np.generic):
        host = np.asarray(leaf)
        array = put_numpy(host.astype(canonicalize(host.dtype), copy=False))
        return TENSOR, torch_adapter.export(array)
    for kind, letter in ((bool, BOOL), (int, INT), (float, FLOAT), (complex, COMPLEX)):
        if isinstance(leaf, kind):
            return letter, kind(leaf)
    return "", leaf


def _width(x: Any) -> Any:
    """What of a Python number is part of a key: its type, and whether 32 bits hold it."""
    kind = type(x)
    return (kind, x in _INT32) if kind is int else kind


def _on_one_device(leaves: list[Any]) -> list[Any]:
    """Scalars of the CPU may stand beside tensors of a GPU, as in torch."""
    devices = {x.device for x in leaves if isinstance(x, torch.Tensor)}
    if len(devices) < 2:  # noqa: PLR2004 (one device)
        return leaves
    others = {x.device for x in leaves if isinstance(x, torch.Tensor) and x.ndim}
    if len(others) != 1:
        return leaves
    (device,) = others
    return [x.to(device) if isinstance(x, torch.Tensor) and not x.ndim else x for x in leaves]


# Python numbers ----------------------------------------------------------------------------------


def leaf_avals(leaves: Sequence[Any], kinds: Sequence[str]) -> list[ShapedArray]:
    """Strongly typed avals of tensors and Python numbers."""
    given = zip(leaves, kinds, strict=True)
    tensors = [_eager.aval_of(x) if k == TENSOR else None for x, k in given]
    wide_float = any([a is not None and a.dtype in (float64, complex128) for a in tensors])
    wide_int = any([a is not None and a.dtype.itemsize == 8 for a in tensors])  # noqa: PLR2004
    return [
        ShapedArray((), number_dtype(k, x, wide_float, wide_int)) if a is None else a
        for x, k, a in zip(leaves, kinds, tensors, strict=True)
    ]


def number_dtype(kind: str, value: Any, wide_float: bool, wide_int: bool) -> np.dtype[Any]:
    """The dtype in which a Python number enters: wide enough for the tensors beside it."""
    if kind == BOOL:
        return bool_
    if kind == INT:
        return int64 if wide_int or value not in _INT32 else int32
    if kind == FLOAT:
        return float64 if wide_float else float32
    return complex128 if wide_float else complex64


def number_tensors(leaves: Sequence[Any], kinds: Sequence[str]) -> list[torch.Tensor]:
    """The leaves with Python numbers as tensors without axes; can be traced by Dynamo."""
    wide_float = wide_int = False
    device = None
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            device = x.device if device is None or x.ndim else device
            wide_int = wide_int or x.dtype.itemsize == 8 or x.dtype == torch.complex128  # noqa: PLR2004
            wide_float = wide_float or x.dtype in (torch.float64, torch.complex128)
    result: list[torch.Tensor] = []
    for x, kind in zip(leaves, kinds, strict=True):
        if kind == TENSOR:
            result.append(x)
        else:
            result.append(torch.full((), x, dtype=_torch_dtype(kind, x, wide_float, wide_int), device=device))
    return result


def _torch_dtype(kind: str, x: Any, wide_float: bool, wide_int: bool) -> torch.dtype:
    if kind == BOOL:
        return torch.bool
    if kind == INT:
        return torch.int64 if wide_int or not -(2**31) <= x < 2**31 else torch.int32
    if kind == FLOAT:
        return torch.float64 if wide_float else torch.float32
    return torch.complex128 if wide_float else torch.complex64


# graphs ------------------------------------------------------------------------------------------


def graph_call(root: str, static: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that torch.compile or torch.export is tracing. Dynamo reads these lines."""
    nums, names = static
    n = len(args)
    static_nums = [i if i >= 0 else i + n for i in nums]
    leaves: list[Any] = []
    positional = [
        ("=", args[i]) if i in static_nums else describe(args[i], leaves) for i in range(n)
    ]
    keywords = [
        (k, ("=", kwargs[k]) if k in names else describe(kwargs[k], leaves)) for k in sorted(kwargs)
    ]
    leaves = [torch.as_tensor(x) if isinstance(x, np.ndarray) else x for x in leaves]
    kinds = [_kind(x) for x in leaves]
    handle = graph_handle(root, tuple(positional), tuple(keywords))
    xs = number_tensors(leaves, kinds)
    outs = _operator.CALL(xs, handle)
    ranks = tuple([(str(x.dtype), x.ndim) for x in xs])
    return rebuild(result_structure(handle, ranks), iter(outs))


def _kind(x: Any) -> str:
    if isinstance(x, torch.Tensor):
        return TENSOR
    if isinstance(x, bool):
        return BOOL
    if isinstance(x, int | torch.SymInt):
        return INT
    return FLOAT if isinstance(x, float | torch.SymFloat) else COMPLEX


@torch._dynamo.assume_constant_result
def graph_handle(root: str, positional: tuple[Any, ...], keywords: tuple[Any, ...]) -> str:
    """The handle of a call; the family is made and lives on, since a graph names it."""
    family = _family_of(root, positional, keywords)
    pin(family)
    return family.handle


@torch._dynamo.assume_constant_result
def result_structure(handle: str, ranks: tuple[Any, ...]) -> Any:
    """The structure of the results, which the fake rule has found out just before."""
    family: Any = _operator.resolve(handle)
    out_tree = family.out_trees[tuple([(d.removeprefix("torch."), n) for d, n in ranks])]
    leaves: list[Any] = []
    return describe(out_tree.unflatten([0.0] * out_tree.num_leaves), leaves)


def _family_of(root: str, positional: tuple[Any, ...], keywords: tuple[Any, ...]) -> CallFamily:
    """The family of a described call of the wrapped function named ``root``."""
    wrapped = _WRAPPED[root]
    kinds: list[str] = []

    def tree(structure: Any) -> Any:
        if type(structure) is tuple and structure[0] == "=":
            return structure[1]
        return rebuild(structure, iter(_leaves_of(structure)))

    args = tuple([tree(s) for s in positional])
    kwargs = {k: tree(s) for k, s in keywords}
    leaves, key = wrapped.key_of(args, kwargs)
    kinds = list(leaves)
    return wrapped.family(args, kwargs, key, tuple(kinds))


def _leaves_of(structure: Any) -> list[str]:
    """The letters of the leaves of a structure, in order."""
    if isinstance(structure, str):
        return [] if structure == "None" else [structure]
    children = structure[-1]
    if structure[0] in ("dict", "OrderedDict"):
        children = [s for _, s in children]
    return [letter for s in children for letter in _leaves_of(s)]


def _handle_structure(
    positional: Any, keywords: Any, args: tuple[Any, ...], static: Sequence[int], named: Any
) -> Any:
    """What a handle says of a call: the structures of its arguments, the values of statics."""
    dynamic = iter(positional)
    described = [
        ("=", args[i]) if i in static else _describe_kinds(next(dynamic)) for i in range(len(args))
    ]
    others = [(k, _describe_kinds(v)) for k, v in keywords.items()]
    others += [(k, ("=", v)) for k, v in named.items()]
    return tuple(described), tuple(sorted(others))


def _describe_kinds(tree: Any) -> Any:
    """The structure of a tree whose leaves are the letters of kinds."""
    leaves, treedef = flatten(tree)
    try:
        structure = describe(treedef.unflatten([0.0] * len(leaves)), [])
    except Exception:  # noqa: BLE001 (a node type that only this process knows)
        return ("opaque", str(treedef), tuple(leaves))
    letters = iter(leaves)

    def lettered(s: Any) -> Any:
        if isinstance(s, str):
            return s if s == "None" else next(letters)
        *head, children = s
        if s[0] in ("dict", "OrderedDict"):
            return (*head, tuple([(k, lettered(c)) for k, c in children]))
        return (*head, tuple([lettered(c) for c in children]))

    return lettered(structure)


def _out_tree(family: CallFamily, xs: Sequence[torch.Tensor]) -> Any:
    """The structure of the results at the shapes of ``xs``."""
    return family.out_trees[
        tuple([(str(x.dtype).removeprefix("torch."), x.ndim) for x in xs])
    ]


# names -------------------------------------------------------------------------------------------


def _register(wrapped: Wrapped, fun: Any) -> str:
    """A name that no living wrapped function has; the import path of the function if possible."""
    module = getattr(fun, "__module__", None) or "?"
    base = f"{module}:{getattr(fun, '__qualname__', type(fun).__qualname__)}"
    with _NAMES:
        name, n = base, 1
        while name in _WRAPPED:
            n += 1
            name = f"{base}#{n}"
        _WRAPPED[name] = wrapped
    return name


def _by_import_path(module: str, qualname: str) -> Any:
    """The object that ``module.qualname`` names now, or None."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return None
    return found


def _rewrap(fun: Any, nums: tuple[int, ...], names: tuple[str, ...]) -> Wrapped:
    return Wrapped(fun, nums, names)


def _find_root(handle: str) -> Family | None:
    """The family of a handle that was written by another process."""
    root, _, text = handle.partition("|")
    if root not in _WRAPPED:
        return None
    try:
        positional, keywords = from_text(text)
    except (ValueError, SyntaxError):
        return None
    return _family_of(root, positional, keywords)


FIND_ROOT.append(_find_root)
