"""Trees of arrays in folders: what is read is what was saved, split in any way."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge._api.exports import folders as files
from tracebridge.errors import (
    ArgumentValueError,
    ExportError,
    TreeMismatchError,
    UnsupportedArgumentError,
    UnsupportedDtypeError,
)
from tracebridge.experimental.array_serialization import pytree_serialization as folders
from tracebridge.sharding import Mesh, NamedSharding, SingleDeviceSharding

DTYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32", "complex64", "int4"]
DTYPES += ["float8_e4m3fn", "int64", "float64"]


def here() -> SingleDeviceSharding:
    return SingleDeviceSharding(tb.devices()[0])


def mesh() -> Mesh:
    return Mesh(np.array(tb.devices()[:4]).reshape(2, 2), ("a", "b"))


@pytest.mark.parametrize("kind", DTYPES)
def test_arrays_of_any_dtype_come_back(tmp_path: Path, kind: str) -> None:
    """Also without axes, and without elements."""
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    with tb.enable_x64():
        saved = [tnp.asarray(np.array(x).astype(dtype)) for x in ([[0, 1], [2, 3]], 1)]
        saved.append(tnp.zeros((3, 0), dtype))
        folders.save(saved, tmp_path)
        loaded = folders.load(tmp_path, here())

        assert [(x.shape, x.dtype) for x in saved] == [(x.shape, x.dtype) for x in loaded]
        for one, other in zip(saved, loaded, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


class Pair(NamedTuple):
    """A node of a class of our own."""

    left: Any
    right: Any


tb.export.register_namedtuple_serialization(Pair, serialized_name="test_array_serialization.Pair")


def test_structures_come_back(tmp_path: Path) -> None:
    """Lists, tuples, dicts, None, named tuples; and shapes without reading an array."""
    data = {"top": [np.ones(2, np.float32), None], "pair": Pair((), np.int32([1])), "empty": {}}
    folders.save(data, tmp_path)
    loaded, types = folders.load(tmp_path, here()), folders.load_pytreedef(tmp_path)

    assert tb.tree.structure(data) == tb.tree.structure(loaded) == tb.tree.structure(types)
    assert types["top"][0] == tb.ShapeDtypeStruct((2,), np.float32)
    assert type(loaded["pair"]) is Pair
    assert loaded["pair"].right.tolist() == [1]


@pytest.mark.parametrize("written", [("a", "b"), ("b",), (None, "a"), (("a", "b"),), ()])
@pytest.mark.parametrize("read", [("a", "b"), (None, ("b", "a")), ()])
def test_another_split_reads_what_one_wrote(tmp_path: Path, written, read) -> None:
    """Each copy is written once, and parts are put together."""
    x = np.arange(32.0, dtype=np.float32).reshape(4, 8)
    spread = tb.device_put(x, NamedSharding(mesh(), tb.P(*written)))
    folders.save({"x": spread}, tmp_path / "new")
    sharding = NamedSharding(mesh(), tb.P(*read))
    loaded = folders.load(tmp_path / "new", {"x": sharding})["x"]

    assert loaded.sharding == sharding
    np.testing.assert_array_equal(x, np.asarray(loaded))
    sizes = [np.load(f).size for f in (tmp_path / "new" / "0").glob("*.npy")]
    assert sum(sizes) == x.size


def test_a_mask_leaves_arrays_out(tmp_path: Path) -> None:
    """Prefixes of the tree say where arrays go, and which."""
    folders.save({"a": (tnp.ones(2), tnp.zeros(2)), "b": tnp.ones(3)}, tmp_path)
    (tmp_path / "2").rename(tmp_path / "gone")
    future = folders.nonblocking_load(tmp_path, here(), mask={"a": True, "b": False})
    loaded = future.result(60)

    assert future.done()
    assert loaded["b"] is None
    assert future.pytree["b"] is None
    assert future.pytree["a"][0].sharding == here()
    assert loaded["a"][1].tolist() == [0, 0]
    with pytest.raises(TreeMismatchError):
        folders.load(tmp_path, {"a": here()})


def test_the_program_may_go_on_while_it_is_saved(tmp_path: Path, monkeypatch) -> None:
    """Donated arrays and changed NumPy arrays are saved as they were."""
    x, y = tnp.arange(4.0), np.ones(3)
    go = threading.Event()
    save = np.save
    monkeypatch.setattr(files.np, "save", lambda *args, **kw: (go.wait(60), save(*args, **kw)))
    future = folders.nonblocking_save({"x": x, "y": y}, tmp_path)
    tb.jit(lambda x: x * 2, donate_argnums=0)(x)
    y[:] = 7
    waiting = not future.done()
    go.set()

    assert waiting
    assert future.result(60) is None
    assert future.pytree["x"] == tb.ShapeDtypeStruct((4,), np.float32)
    loaded = folders.load(tmp_path, here())
    assert ([0, 1, 2, 3], [1, 1, 1]) == (loaded["x"].tolist(), loaded["y"].tolist())


def test_a_folder_keeps_its_contents_until_all_is_written(tmp_path: Path, monkeypatch) -> None:
    """A save that fails leaves the older one; the next one succeeds."""
    where = tmp_path / "state"
    folders.save(tnp.ones(2), where)

    def full(*_args, **_kwargs):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(files.np, "save", full)
        with pytest.raises(OSError, match="no space left"):
            folders.save(tnp.zeros(2), where)
        with pytest.raises(OSError, match="no space left"):
            folders.nonblocking_save(tnp.zeros(2), where).result(60)
    assert folders.load(where, here()).tolist() == [1, 1]

    folders.save(tnp.zeros(2), where)
    assert folders.load(where, here()).tolist() == [0, 0]
    assert ["state"] == [f.name for f in tmp_path.iterdir()]


def test_what_is_in_the_way_stays(tmp_path: Path) -> None:
    """Neither folders of others nor, without overwrite, a saved tree are replaced."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("here")
    with pytest.raises(ExportError, match="holds something else than a saved tree"):
        folders.save(tnp.ones(2), tmp_path / "notes")
    folders.save(tnp.ones(2), tmp_path / "saved", overwrite=False)
    with pytest.raises(ExportError, match="saved exists"):
        folders.save(tnp.ones(2), tmp_path / "saved", overwrite=False)

    assert (tmp_path / "notes" / "mine.txt").read_text() == "here"


def test_damaged_folders_say_so(tmp_path: Path) -> None:
    """A missing part, a part that is cut off, no tree at all, a later format."""
    x = tb.device_put(np.arange(8.0), NamedSharding(mesh(), tb.P(("a", "b"))))
    folders.save([x], tmp_path)
    part = tmp_path / "0" / "2-4.npy"
    whole = part.read_bytes()
    part.write_bytes(whole[:-3])
    with pytest.raises(ExportError, match=r"2-4\.npy is damaged"):
        folders.load(tmp_path, here())
    part.unlink()
    with pytest.raises(ExportError, match="2 of 8 elements are missing"):
        folders.load(tmp_path, here())
    (tmp_path / "tree.json").write_text('{"format": 99}')
    with pytest.raises(ExportError, match="format 99, expected 1"):
        folders.load(tmp_path, here())
    with pytest.raises(ExportError, match="holds no saved tree"):
        folders.load_pytreedef(tmp_path / "nowhere")


def test_keys_come_back_split_otherwise(tmp_path: Path) -> None:
    """Also one key, none, and those of other generators; their types are known before."""
    keys = tb.random.split(tb.random.key(3), 4)
    saved = {
        "split": tb.device_put(keys, NamedSharding(mesh(), tb.P(("a", "b")))),
        "one": tb.random.key(7, impl="rbg"),
        "none": keys[:0],
        "words": tb.random.key_data(keys),
    }
    folders.save(saved, tmp_path)
    types = folders.load_pytreedef(tmp_path)
    loaded = folders.load(tmp_path, NamedSharding(mesh(), tb.P()))

    for name, value in saved.items():
        assert (types[name].shape, types[name].dtype) == (value.shape, value.dtype)
        assert loaded[name].dtype == value.dtype
    for name in ("split", "one", "none"):
        expected, found = (tb.random.key_data(x[name]) for x in (saved, loaded))
        np.testing.assert_array_equal(expected, found)
    again = folders.load(tmp_path, here(), mask={**dict.fromkeys(saved, False), "split": True})
    spread = NamedSharding(mesh(), tb.P("a"))
    assert folders.load(tmp_path, {**dict.fromkeys(saved, here()), "split": spread})[
        "split"
    ].sharding.is_equivalent_to(spread, 1)
    assert tb.random.uniform(keys[2]) == tb.random.uniform(again["split"][2])


def test_keys_of_an_unknown_generator_are_refused(tmp_path: Path) -> None:
    """A process that does not know the generator cannot draw from its keys."""
    folders.save(tb.random.key(0), tmp_path)
    structure = tmp_path / "tree.json"
    structure.write_text(structure.read_text().replace("threefry2x32", "sieve"))

    with pytest.raises(ExportError, match="generator 'sieve', which is not known"):
        folders.load(tmp_path, here())


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    """Numbers, tracers; addresses; formats of other libraries."""
    for leaf in (1.0, "text"):
        with pytest.raises(UnsupportedDtypeError, match="expected arrays of numbers"):
            folders.save({"a": leaf}, tmp_path)
    with pytest.raises(tb.errors.ConcretizationTypeError):
        tb.jit(lambda x: folders.save(x, tmp_path))(tnp.ones(2))
    with pytest.raises(ArgumentValueError, match="is an address"):
        folders.save(tnp.ones(2), "gs://bucket/state")
    with pytest.raises(UnsupportedArgumentError, match="ts_specs is not supported"):
        folders.load(tmp_path, here(), ts_specs={})
    assert not list(tmp_path.iterdir())


def test_managers_write_while_the_program_goes_on(tmp_path) -> None:
    """What a manager wrote it reads again, cast and with its shape checked; its callback ran."""
    from tracebridge.errors import ArgumentValueError
    from tracebridge.experimental.array_serialization import serialization

    here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    manager, committed = serialization.GlobalAsyncCheckpointManager(), []
    arrays = [tb.numpy.arange(3), tb.numpy.ones((2, 2), "bfloat16")]
    specs = [serialization.get_tensorstore_spec(tmp_path / name) for name in "ab"]

    manager.serialize(arrays, specs, on_commit_callback=lambda: committed.append(1))
    manager.wait_until_finished()
    manager.check_for_errors()

    assert committed == [1]
    read = manager.deserialize([here, here], specs)
    assert [x.tolist() for x in arrays] == [x.tolist() for x in read]
    cast = manager.deserialize([here], specs[:1], global_shapes=[(3,)], dtypes=["float32"])
    assert cast[0].dtype == np.float32
    with pytest.raises(ArgumentValueError, match="shape"):
        manager.deserialize([here], specs[:1], global_shapes=[(4,)])


def test_managers_take_random_keys(tmp_path) -> None:
    """With the dtype that they have, as with none given."""
    from tracebridge.experimental.array_serialization import serialization

    here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    manager, key = serialization.GlobalAsyncCheckpointManager(), tb.random.key(5)
    spec = serialization.get_tensorstore_spec(tmp_path / "key")

    manager.serialize([key], [spec])
    for dtypes in (None, [key.dtype]):
        (read,) = manager.deserialize([here], [spec], dtypes=dtypes)
        assert tb.random.bits(key) == tb.random.bits(read)


def test_managers_raise_what_went_wrong(tmp_path) -> None:
    """An error of the callback is raised by the next question, once."""
    from tracebridge.experimental.array_serialization import serialization

    def fail():
        msg = "no commit"
        raise OSError(msg)

    manager = serialization.GlobalAsyncCheckpointManager()
    spec = serialization.get_tensorstore_spec(tmp_path / "a")
    manager.serialize([tb.numpy.ones(2)], [spec], on_commit_callback=fail)

    with pytest.raises(OSError, match="no commit"):
        manager.wait_until_finished()
    manager.wait_until_finished()


def test_managers_can_be_waited_for_again(tmp_path) -> None:
    """What took too long is not taken for written."""
    from tracebridge.experimental.array_serialization import serialization

    go, committed = threading.Event(), []
    manager = serialization.GlobalAsyncCheckpointManager(timeout_secs=0.05)
    spec = serialization.get_tensorstore_spec(tmp_path / "a")
    manager.serialize(
        [tb.numpy.ones(2)], [spec], on_commit_callback=lambda: committed.append(go.wait(60))
    )

    for _ in range(2):
        with pytest.raises(TimeoutError):
            manager.wait_until_finished()
    go.set()
    manager._timeout = 60
    manager.wait_until_finished()

    assert committed == [True]
