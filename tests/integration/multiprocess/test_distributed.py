"""One program in two processes: devices, arrays, programs, maps, and what they tell each other."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.multiprocess import cases

pytestmark = pytest.mark.multiprocess
ROOT = Path(__file__).parents[3]
WHOLE = list(range(8))

EXPECTED = {
    "devices": [[0, 0, 1, 1], 2, 2, True],
    "reading_what_all_hold": [0, 1, 2],
    "text_of_an_array": ["Array(shape=(8,), dtype=float32, in several processes)"] * 2,
    "data_of_processes": [
        [[0, 1, 10, 11], [2, 3, 12, 13], [4, 5, 14, 15], [6, 7, 16, 17]],
        WHOLE,
        [0, 1],
    ],
    "programs_for_whole_arrays": [28, [2 * i for i in WHOLE], 5, 6, WHOLE[::-1]],
    "arguments_of_the_host": [i + 1 for i in WHOLE],
    "arrays_that_programs_close_over": [160_057, 28, [80_000] * 2],
    "training": [1, 2, 3],
    "programs_of_devices": [12, 16],
    "loops": [28, [0, 0, 1, 3, 6, 10, 15, 21]],
    "callbacks": [2 * i for i in WHOLE],
    "maps_with_given_devices": [11, 11],
    "derivatives_of_maps": [24, 6],
    "gathering": [
        {"a": [[0, 1], [1, 2]], "b": [0, 2.5], "c": [[1 << 40]] * 2, "d": [[], []]},
        {"a": [0, 1, 1, 2], "b": [0, 2.5], "c": [1 << 40] * 2, "d": []},
        ["int64", "float64", "int64", "float64"],
    ],
    "broadcasting": [{"a": [0, 1, 2], "b": 1 << 40}, {"a": [1, 2, 3], "b": (1 << 40) + 1}],
    "equal_data": None,
    "saving_to_a_folder": [WHOLE, [0, 1, 2], [2 * i for i in WHOLE], ["0-8.npy"]],
    "saving_before_one_is_ended": [1, False],
}
"""What both processes get."""

EXPECTED_OF_EACH = {
    "parts_of_an_array": [
        [
            [8],
            False,
            [[0, [0, 1]], [2, [2, 3]]],
            [[0, False], [2, False], [4, True], [6, True]],
        ],
        [
            [8],
            False,
            [[4, [4, 5]], [6, [6, 7]]],
            [[0, True], [2, True], [4, False], [6, False]],
        ],
    ],
    "split_in_another_way": [
        [
            [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
            [[12, 13, 14, 15]],
            120,
            True,
        ],
        [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]], [[4, 5, 6, 7]], 120, True],
    ],
    "maps_over_all_devices": [
        [[[22, 22], [0, 1], [4, 4]], [2, 2]],
        [[[22, 22], [2, 3], [4, 4]], [2, 2]],
    ],
    "arrays_of_processes_and_back": [
        [[8], [2], [0, 1, 2, 3, 10, 11, 12, 13], {"x": [0, 1, 2, 3], "y": [1, 1]}],
        [[8], [2], [0, 1, 2, 3, 10, 11, 12, 13], {"x": [10, 11, 12, 13], "y": [1, 1]}],
    ],
}

ERRORS = {
    "reading_what_others_hold": "OtherProcessesError: the elements of f32[8]",
    "putting_other_things_in_each_process": "ProcessesError: device_put: processes [1]",
    "putting_on_a_device_of_another_process": "OtherProcessesError: device_put: an array of",
    "moving_to_a_device_of_another_process": "OtherProcessesError: device_put: an array of",
    "data_that_is_no_part": "ShapeMismatchError: make_array_from_process_local_data",
    "maps_of_other_sizes": "DevicePlacementError: pmap(<lambda>): the program runs in 2",
    "maps_inside_programs": "OtherProcessesError: pmap(<lambda>) is inside of a program",
    "gathering_other_shapes": "ProcessesError: process_allgather: processes [1] give",
    "gathering_without_tiles": "ArgumentValueError: process_allgather: f32[8]",
    "broadcasting_from_two": "ProcessesError: broadcast_one_to_all: is_source is true",
    "other_places": "ProcessesError: sync_global_devices: 'in process",
    "other_data": "ProcessesError: seeds differ: processes [1]",
    "meeting_twice": "ProcessesError: distributed.initialize was called before",
}
OF_ONE = {"values_that_are_not_finite"}


@pytest.fixture(scope="module")
def results(tmp_path_factory, subprocess_environment):
    """What the cases gave in process 0 and in process 1."""
    folder = tmp_path_factory.mktemp("processes")
    environment = {**subprocess_environment, "TRACEBRIDGE_NUM_CPU_DEVICES": "2"}
    address = f"localhost:{free_port()}"
    processes = [
        start([str(cases.__file__), address, str(i), str(folder / str(i))], environment)
        for i in range(2)
    ]
    check(processes)
    return [json.loads((folder / str(i)).read_text()) for i in range(2)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=ROOT)


def check(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for the processes; what they printed."""
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    except subprocess.TimeoutExpired as error:
        for process in processes:
            process.kill()
            error.add_note(f"it said: {process.communicate()[1][-3000:]}")
        raise
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [out for out, _ in outputs]


def test_every_case_has_its_expectation() -> None:
    """None is run without being looked at."""
    looked_at = [*EXPECTED, *EXPECTED_OF_EACH, *ERRORS, *OF_ONE]

    assert sorted(cases.CASES) == sorted(looked_at)


def test_both_get_the_same(results) -> None:
    """Values that all processes compute together."""
    for name, expected in EXPECTED.items():
        assert [expected] * 2 == [result[name] for result in results], name


def test_each_gets_its_part(results) -> None:
    """Values of which each process has its own."""
    for name, expected in EXPECTED_OF_EACH.items():
        assert expected == [result[name] for result in results], name


def test_what_cannot_be_done_is_said(results) -> None:
    """In all processes, and they go on together."""
    for name, beginning in ERRORS.items():
        for result in results:
            assert str(result[name]).startswith(beginning), (name, result[name])


def test_the_process_that_has_a_nan_says_so(results) -> None:
    """The other one goes on, to what waits for the first."""
    assert "result 0 contains NaN" in results[0]["values_that_are_not_finite"]
    assert results[1]["values_that_are_not_finite"] is None


LONELY = """
import tracebridge as tb
try:
    tb.distributed.initialize("localhost:{port}", 2, {index}, initialization_timeout=1)
except tb.errors.ProcessesError as error:
    print(str(error).partition(chr(10))[0])
print(tb.numpy.arange(3))
"""


def test_others_that_do_not_come(subprocess_environment) -> None:
    """An error of Python, after which the process can work alone."""
    ports = [free_port(), free_port()]
    codes = [LONELY.format(port=port, index=i) for i, port in enumerate(ports)]
    outs = check([start(["-c", code], subprocess_environment) for code in codes])

    for i, (port, out) in enumerate(zip(ports, outs, strict=True)):
        first, last = out.strip().splitlines()
        assert first == (
            f"distributed.initialize: process {i} of 2 did not meet the others at "
            f"localhost:{port} within 1 s"
        )
        assert last == "[0 1 2]"


DETECTED = """
import numpy as np
import tracebridge as tb
from tracebridge import lax
tb.config.update("compilation_cache_dir", {folder!r})
tb.config.update("persistent_cache_min_compile_time_secs", 0.0)
tb.distributed.initialize()
total = tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(np.ones(1) + tb.process_index())
print(tb.process_index(), total)
tb.distributed.shutdown()
tb.distributed.shutdown()
print(tb.distributed.is_initialized())
"""


def test_started_by_others_with_programs_on_disk(tmp_path, subprocess_environment) -> None:
    """Everything is in the environment; the second time programs come from the cache."""
    code = DETECTED.format(folder=str(tmp_path))
    for _ in range(2):
        shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port() - 1)}
        shared |= {"WORLD_SIZE": "2", "TRACEBRIDGE_NUM_CPU_DEVICES": "1"}
        outs = check(
            [
                start(["-c", code], {**subprocess_environment, **shared, "RANK": str(i)})
                for i in range(2)
            ]
        )

        assert [out.strip().splitlines()[-2:] for out in outs] == [
            [f"{i} [3.]", "False"] for i in range(2)
        ]
    assert list(tmp_path.iterdir())


FAILING = """
import numpy as np
import tracebridge as tb
from tracebridge import lax
tb.distributed.initialize("localhost:{port}", 2, {index})
total = tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i")
total(np.ones(1))
if {index} == 1:
    raise ValueError("here it ends")
total(np.ones(1))
"""


def test_a_process_that_fails_ends_the_others(subprocess_environment) -> None:
    """Neither waits for the other until some timeout."""
    environment = {**subprocess_environment, "TRACEBRIDGE_NUM_CPU_DEVICES": "1"}
    port = free_port()
    codes = [FAILING.format(port=port, index=i) for i in range(2)]
    processes = [start(["-c", code], environment) for code in codes]
    waiting, failing = [process.communicate(timeout=100)[1] for process in processes]

    assert [1, 1] == [process.returncode for process in processes]
    assert "ValueError: here it ends" in failing
    assert "ExecutionError: <lambda>: XLA could not run the program" in waiting


def test_devices_in_use(subprocess_environment) -> None:
    """Nobody can be met any more."""
    code = (
        "import tracebridge as tb\ntb.numpy.ones(1)\n"
        "try: tb.distributed.initialize('localhost:1', 2, 0)\n"
        "except tb.errors.ProcessesError as error: print(error)"
    )
    (out,) = check([start(["-c", code], subprocess_environment)])

    assert "is called after the first use of a device" in out
