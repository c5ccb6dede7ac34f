"""pmap: a function of one element, run for all elements at once, each on its own device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import tracebridge._api.vectorize.vmap as vmapping
from tracebridge._api.args.argnums import check_callable, check_disjoint, indices
from tracebridge._api.args.statics import Splitter
from tracebridge._api.args.values import name_of_leaf
from tracebridge._api.args.wraps import named_like
from tracebridge.core.aot.map_stages import LoweredMap, lower_map
from tracebridge.core.control.calls.traced_call import Arguments, argument_names
from tracebridge.core.control.pmap.call import PmapOptions, make_pmap
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    AxisSpecError,
)
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.runtime.calls.fastpath import KeyFunctions
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaves

FIRST_AXIS: Final = 0


@final
class AxisOf:
    """Stands for the axis name of a ``pmap`` that was not given one."""

    __slots__ = ("_function",)

    def __init__(self, function: str) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"<axis of pmap({self._function})>"


def pmap(
    fun: Callable[..., object],
    axis_name: object = None,
    *,
    in_axes: int | Sequence[object] | None = 0,
    out_axes: object = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[object] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
    global_arg_shapes: Any = None,
) -> Callable[..., Any]:
    """A function that runs ``fun`` for each element of mapped axes, each on its own device.

    It computes what ``vmap`` computes; where ``vmap`` turns each operation into one of the whole
    batch, ``pmap`` compiles ``fun`` once and runs it on as many devices as there are elements.
    Results stay spread over the devices. Under ``jit`` and control flow, which run on one device,
    a mapped function is computed as by ``vmap``.

    Where a program runs in several processes (see ``distributed.initialize``), each maps its own
    elements, one for each of its devices; collectives inside are over the elements of all.

    Args:
        fun: function of arrays and trees of arrays.
        axis_name: name of the mapped axis, for collectives inside ``fun``.
        in_axes: as in ``vmap``: which axis of each positional argument is mapped; None for
            arguments that each device gets whole. Keyword arguments are mapped over their first
            axis.
        out_axes: where the mapped axis goes in the results: an int, or a tree prefix of the
            result. None gives the result of the first device, for results that are the same on
            all.
        static_broadcasted_argnums: positions of arguments that are compile-time constants.
        devices: the devices to use, one for each element. By default the first local ones, and with
            several processes those of all.
        backend: platform of the devices: "cpu", "gpu", "tpu".
        axis_size: size of the mapped axis; needed only if no argument is mapped.
        donate_argnums: positions of arguments whose memory the results may take over.
        global_arg_shapes: accepted for compatibility: a shape, or None, for each argument. It
            has no effect: shapes are those of the arguments in each process.

    Returns:
        A function with the arguments of ``fun``, each with one more axis where it is mapped. Its
        attribute ``lower`` gives the program for some arguments, which can be compiled; its
        attribute ``clear_cache`` forgets the programs.

    Raises:
        AxisSpecError: ``in_axes`` or ``out_axes`` does not fit.
        AxisSizeError: mapped axes have different sizes, or no size is known.
        ArgumentSpecError: a position names no argument, or one is static and donated.
        DevicePlacementError: there are too few devices, or ``devices`` does not fit.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> n = tb.local_device_count()
    >>> share = tb.pmap(lambda x: x / tb.lax.psum(x, "i"), axis_name="i")
    >>> print(share(tnp.ones(n)).sum())
    1.0
    """
    check_callable("pmap", fun)
    static = tuple(sorted(set(indices("pmap", _STATIC, static_broadcasted_argnums))))
    donated = tuple(sorted(set(indices("pmap", "donate_argnums", donate_argnums))))
    check_disjoint("pmap", (static, ()), (donated, ()))
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    _check_spec("in_axes", axes)
    _check_spec("out_axes", out_axes)
    if not (axes is None or isinstance(axes, int | tuple)):
        raise AxisSpecError(
            "pmap in_axes must be an int, None, or a tuple with one entry per positional "
            f"argument, but got {in_axes!r}"
        )
    _check_global_shapes(global_arg_shapes)
    mapping = _Mapping(fun, axes, out_axes, axis_size, axis_name, static, donated)
    splitter = mapping.splitter
    options = PmapOptions(
        AxisOf(name_of(fun)) if axis_name is None else axis_name,
        _devices(devices, backend),
        backend,
        mapping.resolve,
        mapping.input_axes,
        mapping.output_axes,
        mapping.without_devices,
    )
    keys = KeyFunctions(splitter.flat_key, splitter.tree_key) if static else None
    call, pmapped = make_pmap(fun, options, keys)
    named_like(fun)(call)

    def lower(*args: object, **kwargs: object) -> LoweredMap:
        return lower_map(pmapped, args, kwargs)

    function: Any = call
    function.lower = api_boundary(lower)
    function.clear_cache = pmapped.clear
    return call


_STATIC = "static_broadcasted_argnums"


@final
class _Mapping:
    """How the arguments of one mapped function are understood."""

    def __init__(
        self,
        fun: Callable[..., object],
        in_axes: object,
        out_axes: object,
        axis_size: int | None,
        axis_name: object,
        static: tuple[int, ...],
        donated: tuple[int, ...],
    ) -> None:
        self.static = static
        self.donated = donated
        self.call = f"pmap({name_of(fun)})"
        self.in_axes = in_axes
        self.out_axes = out_axes
        self.axis_size = axis_size
        self.axis_name = axis_name
        self.splitter = Splitter("pmap", fun, static, (), (donated, ()))

    def resolve(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
        """The arguments with static ones bound."""
        n = len(args)
        for option, positions in ((_STATIC, self.static), ("donate_argnums", self.donated)):
            for i in positions:
                if not -n <= i < n:
                    msg = f"{self.call}: {option} contains {i}, but the call has {n} positional "
                    raise ArgumentSpecError(
                        msg + ("argument" if n == 1 else "arguments"),
                        hint="give these arguments by position, not by keyword",
                    )
        return self.splitter.arguments(args, kwargs)

    def dynamic_axes(self, n_args: int) -> Any:
        """``in_axes`` without the entries of static arguments."""
        axes = self.in_axes
        if not isinstance(axes, tuple):
            return axes
        if len(axes) != n_args:
            raise AxisSpecError(
                f"{self.call}: in_axes has {len(axes)} entries, but the call has {n_args} "
                f"positional arguments",
                expected="one entry per positional argument, or one int for all",
                hint="keyword arguments are mapped over their first axis and have no entry",
            )
        return tuple([axes[i] for i in self.splitter.layout(n_args)[1]])

    def input_axes(
        self, call: Arguments, avals: Sequence[Any], n_args: int
    ) -> tuple[tuple[int | None, ...], int]:
        """The mapped axis of each leaf, not negative, and the common size."""
        positional, keywords = call.tree.children()
        dims = flatten_axes(
            self.call,
            positional,
            self.dynamic_axes(n_args),
            axes_name="in_axes",
            full_name="args",
            of_arguments=True,
        )
        dims = [*dims, *[FIRST_AXIS] * keywords.num_leaves]
        axes: list[int | None] = []
        sizes: list[tuple[int, int]] = []
        for i, (aval, dim) in enumerate(zip(avals, dims, strict=True)):
            if dim is None:
                axes.append(None)
                continue
            if not -aval.ndim <= dim < aval.ndim:
                raise self._bad_axis(call, i, dim, aval)
            axes.append(dim % aval.ndim)
            sizes.append((i, aval.shape[dim]))
        return tuple(axes), self._size(call, avals, axes, sizes)

    def _size(
        self,
        call: Arguments,
        avals: Sequence[Any],
        axes: Sequence[int | None],
        sizes: Sequence[tuple[int, int]],
    ) -> int:
        declared_size = self.axis_size
        all_sizes = {size for _, size in sizes} | (
            set() if declared_size is None else {declared_size}
        )
        if all_sizes == {0}:
            msg = f"{self.call}: the mapped axis has size 0"
            raise AxisSizeError(msg, expected="at least one element: each has a device")
        if len(all_sizes) == 1:
            return all_sizes.pop()
        if not all_sizes:
            what = "no argument is mapped (all of in_axes is None)" if avals else (
                "the call has no array argument")  # fmt: skip
            raise AxisSizeError(
                f"{self.call}: {what} and axis_size is not given",
                hint="map an argument, or give axis_size",
            )
        names = argument_names(call.tree, call.parameters)
        lines = [] if declared_size is None else [f"axis_size={declared_size}"]
        lines += [
            f"argument {names[i]} has size {size} at axis {axes[i]} of {avals[i].str_short()}"
            for i, size in sizes
        ]
        shown = "\n      ".join(lines)
        raise AxisSizeError(
            "pmap got inconsistent sizes for array axes to be mapped: those of "
            f"{self.call}\n      {shown}",
            hint="map axes of one size, or give in_axes=None for arguments that are not mapped",
        )

    def _bad_axis(self, call: Arguments, index: int, dim: int, aval: Any) -> AxisSpecError:
        n = aval.ndim
        name = argument_names(call.tree, call.parameters)[index]
        return AxisSpecError(
            f"{self.call}: axis {dim} of argument {name} is to be mapped, but it is "
            f"{aval.str_short()}",
            expected=f"an axis from {-n} to {n - 1}" if n else "None: a scalar has no axis to map",
            hint="give in_axes=None for arguments that are not mapped",
        )

    def output_axes(self, tree: PyTreeDef, avals: Sequence[Any]) -> tuple[int | None, ...]:
        """Where the mapped axis goes in each result, not negative."""
        spec = self.out_axes
        wanted = flatten_axes(self.call, tree, spec, axes_name="out_axes", full_name="the result")
        axes: list[int | None] = []
        for i, (aval, axis) in enumerate(zip(avals, wanted, strict=True)):
            n = aval.ndim + 1
            if axis is not None and not -n <= axis < n:
                raise AxisSpecError(
                    f"{self.call}: out_axes is {axis} for {name_of_leaf(tree, i, 'the result')}, "
                    f"whose shape per element is {aval.shape}",
                    expected=f"an axis from {-n} to {n - 1}",
                )
            axes.append(None if axis is None else axis % n)
        return tuple(axes)

    def without_devices(self, *args: object, **kwargs: object) -> Any:
        """The call step by step, for ``disable_jit``."""
        call = self.resolve(args, kwargs)
        mapped = vmapping.vmap(
            call.fun,
            self.dynamic_axes(len(args)),
            self.out_axes,
            axis_name=self.axis_name,
            axis_size=self.axis_size,
        )
        given, named = call.tree.unflatten(call.leaves)
        return mapped(*given, **named)


def _check_spec(option: str, axes: Any) -> None:
    for leaf in leaves(axes):
        # A bool is an index for Python, but hardly meant as an axis.
        if isinstance(leaf, bool) or not hasattr(leaf, "__index__"):
            raise AxisSpecError(
                f"pmap {option} must be an int, None, or a tree of them, but got "
                f"{shown(leaf)} of type {type(leaf).__name__}",
            )


def _check_global_shapes(shapes: Any) -> None:
    """The shapes of arguments over all processes; there is nothing to do with them."""
    if shapes is None:
        return
    fits = isinstance(shapes, tuple | list) and all(
        [isinstance(n, int) for leaf in flatten(shapes)[0] for n in [leaf]]
    )
    if not fits:
        msg = f"pmap: global_arg_shapes is {shapes!r}"
        raise ArgumentSpecError(msg, expected="a tuple of shapes and None, one per argument")


def _devices(devices: Sequence[Any] | None, backend: str | None) -> tuple[Any, ...] | None:
    if devices is None:
        return None
    device_tuple = tuple(devices)
    if not device_tuple:
        msg = "pmap: devices is empty"
        raise DevicePlacementError(msg, expected="None, or a sequence of at least one device")
    for device in device_tuple:
        if not (hasattr(device, "platform") and hasattr(device, "client")):
            msg = f"pmap: devices contains {device!r} of type {type(device).__name__}"
            raise DevicePlacementError(msg, expected="devices, as tracebridge.devices() gives them")
    if len(set(device_tuple)) != len(device_tuple):
        raise DevicePlacementError("pmap: a device appears twice in devices")
    platforms = {d.platform for d in device_tuple}
    if len(platforms) > 1 or (backend is not None and backend not in platforms):
        names = ", ".join(sorted(platforms))
        msg = f"pmap: devices are of the platforms {names} and backend={backend!r}"
        raise DevicePlacementError(msg, expected="devices of one platform, that of backend")
    return device_tuple
