"""Layouts and formats as data, and where arrays, programs and options have them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.experimental.layout import Format, Layout
from tracebridge.sharding import SingleDeviceSharding
from tracebridge.testing import assert_allclose

HERE = SingleDeviceSharding(tb.devices("cpu")[0])
X = np.arange(6, dtype="f4").reshape(2, 3)
ROWS = Layout((0, 1), ())
NUMBER: Any = 3


def test_layouts_are_data() -> None:
    """Equal arguments make equal objects, also through pickle."""
    layout = Layout([1, 0], [[2, 2]], 4)

    assert layout == Layout((1, 0), ((2, 2),), 4)
    assert hash(layout) == hash(Layout((1, 0), ((2, 2),), 4))
    assert layout != Layout((1, 0))
    assert layout != (1, 0)
    assert layout == pickle.loads(pickle.dumps(layout))
    assert ((1, 0), ((2, 2),), 4) == (
        layout.major_to_minor,
        layout.tiling,
        layout.sub_byte_element_size_in_bits,
    )
    expected = "Layout(major_to_minor=(1, 0), tiling=((2, 2),), sub_byte_element_size_in_bits=4)"
    assert expected == repr(layout)
    assert Layout((0, 1), ((2, 2),), 4) == layout.update(major_to_minor=(0, 1))
    assert "AUTO" == repr(Layout.AUTO)


def test_formats_are_data() -> None:
    """A layout and a sharding, of which one or both may be missing."""
    given = Format(ROWS, HERE)

    assert (ROWS, HERE) == (given.layout, given.sharding)
    assert given == Format(ROWS, HERE)
    assert hash(given) == hash(Format(ROWS, HERE))
    assert given != Format(None, HERE)
    assert given != ROWS
    assert "Format(layout=AUTO, sharding=None)" == repr(Format(Layout.AUTO))
    assert (None, None) == (Format().layout, Format().sharding)


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (ArgumentTypeError, "Layout: major_to_minor is 3", lambda: Layout(NUMBER)),
        (ArgumentTypeError, "Format: layout is 3 of type int", lambda: Format(3, HERE)),
        (ArgumentTypeError, "Format: sharding is 'cpu'", lambda: Format(None, "cpu")),
        (ArgumentValueError, "no sharding is given", lambda: Format(ROWS)),
        (ArgumentValueError, "for an array of shape", lambda: ROWS.check_compatible_aval((2,))),
        (ArgumentValueError, "expected: no axes", lambda: ROWS.check_compatible_aval(())),
    ],
)
def test_bad_arguments(error: Any, message: str, make: Any) -> None:
    """Messages say what was given."""
    with pytest.raises(error, match=message):
        make()


def test_formats_of_arrays_and_programs() -> None:
    """Everything is row-major, where it is."""
    x, scalar = tnp.array(X), tnp.ones(())

    assert Format(ROWS, x.sharding) == x.format
    assert Format(Layout((), ()), x.sharding) == scalar.format
    compiled = tb.jit(lambda a, *, k: {"s": a + k, "n": k}).lower(x, k=scalar).compile()
    assert ((x.format,), {"k": scalar.format}) == compiled.input_formats
    assert {"s": x.format, "n": scalar.format} == compiled.output_formats
    assert ((HERE,), {"k": HERE}) == compiled.input_shardings
    assert {"s": HERE, "n": HERE} == compiled.output_shardings


@pytest.mark.skipif("tb.local_device_count() < 2", reason="needs 2 devices")
def test_formats_over_devices() -> None:
    """Of programs over a mesh, and of maps."""
    place = tb.NamedSharding(tb.make_mesh((2,), ("x",)), tb.P("x"))
    compiled = tb.jit(lambda x: 2 * x, in_shardings=place).lower(X).compile()
    mapped = tb.pmap(lambda x: 2 * x).lower(X).compile()

    assert ((Format(ROWS, place),), {}) == compiled.input_formats
    assert Format(ROWS, place) == compiled.output_formats
    ((given,), _), out = mapped.input_formats, mapped.output_formats
    assert (ROWS, ROWS) == (given.layout, out.layout)
    assert mapped(X).sharding is out.sharding is mapped.output_shardings


@pytest.mark.parametrize("layout", [None, Layout.AUTO, Layout((0, 1))])
def test_formats_in_place_of_shardings(layout: Any) -> None:
    """In jit and device_put, also in trees; without a sharding nothing is asked for."""
    place = Format(layout, HERE)
    trees = [place, (place, None)]
    if not isinstance(layout, Layout):
        trees += [Format(layout), (place, Format(layout))]

    for spec in trees:
        f = tb.jit(lambda x, y: (x + y, y), in_shardings=spec, out_shardings=spec)
        assert_allclose(f(X, X)[0], X + X)
    if layout is Layout.AUTO:
        return
    moved = tb.device_put({"a": X, "b": 1.0}, {"a": place, "b": None})
    assert HERE is moved["a"].sharding
    assert HERE is tb.device_put(X, place).sharding


def test_other_layouts_are_refused() -> None:
    """Arrays have no other layout than row-major."""
    columns = Format(Layout((1, 0)), HERE)

    for make in (
        lambda: tb.device_put(X, columns),
        lambda: tb.jit(lambda x: x, in_shardings=columns),
        lambda: tb.jit(lambda x: x, out_shardings=(columns,)),
    ):
        with pytest.raises(ArgumentValueError, match="a row-major layout: arrays have no other"):
            make()


def test_device_assignment() -> None:
    """The devices that the program was lowered for, or an error."""
    device = tb.devices()[0]
    lowered = tb.jit(lambda x: 2 * x).lower(X)

    assert_allclose(lowered.compile(device_assignment=(device,))(X), 2 * X)
    with pytest.raises(DevicePlacementError, match="device_assignment is"):
        lowered.compile(device_assignment=(device, device))
    mapped = tb.pmap(lambda x: 2 * x).lower(X[:1])
    assert_allclose(mapped.compile(device_assignment=[device])(X[:1]), 2 * X[:1])
    with pytest.raises(DevicePlacementError, match=r"pmap\(<lambda>\).*device_assignment is \(\)"):
        mapped.compile(device_assignment=())


def test_layouts_that_are_left_open() -> None:
    """Nothing is compiled where an array is put or described, so that nothing chooses one."""
    with pytest.raises(ArgumentValueError, match=r"device_put: device is Format.*AUTO"):
        tb.device_put(X, Format(Layout.AUTO, HERE))
    with pytest.raises(ArgumentTypeError, match=r"ShapeDtypeStruct: .*AUTO"):
        tb.ShapeDtypeStruct((2,), "float32", sharding=Format(Layout.AUTO))


def test_formats_of_shapes() -> None:
    """A shape takes the format of an array, and gives it back."""
    x = tb.device_put(np.ones((2, 3)), HERE)

    assert x.format == tb.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.format).format
    assert Format() == tb.ShapeDtypeStruct(x.shape, x.dtype).format
