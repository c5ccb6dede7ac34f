"""What starters of processes say in the environment."""

from __future__ import annotations

import pytest

from tracebridge.core.runtime.processes.cluster import Members, detect, first_host

SLURM = {
    "SLURM_JOB_ID": "4096012",
    "SLURM_STEP_NODELIST": "node[007-009,12],other",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
OPEN_MPI_4 = {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.96.0.1,10.148.0.1:34911"}
OPEN_MPI_5 = {**OPEN_MPI, "PMIX_SERVER_URI41": "prterun-head-4097@0.0;tcp4://10.96.0.2:34911"}
TORCHRUN = {
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
    "RANK": "5",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "1",
}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "2",
              "HOSTNAME": "train-2"}  # fmt: skip
OWN = {
    "TRACEBRIDGE_COORDINATOR_ADDRESS": "here:1234",
    "TRACEBRIDGE_NUM_PROCESSES": "4",
    "TRACEBRIDGE_PROCESS_ID": "0",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Members(None, None, None)),
        (OWN, Members("here:1234", 4, 0)),
        (SLURM, Members("node007:61452", 8, 3, (1,))),
        (OPEN_MPI_4, Members("10.96.0.1:61440", 2, 1, (1,))),
        (OPEN_MPI_5, Members("10.96.0.2:61441", 2, 1, (1,))),
        (OPEN_MPI, Members(None, 2, 1, (1,))),
        (TORCHRUN, Members("10.0.0.1:29501", 6, 5, (1,))),
        ({**KUBERNETES, "TRACEBRIDGE_NUM_PROCESSES": "3"}, Members("train-0.train:61440", 3, 2)),
        ({**KUBERNETES, "HOSTNAME": "elsewhere"}, Members(None, None, 2)),
        # What the user says is before what the starter says.
        ({**SLURM, "TRACEBRIDGE_PROCESS_ID": "7"}, Members("node007:61452", 8, 7, (1,))),
    ],
)
def test_what_is_found(environment, expected) -> None:
    """The address of process 0, the number of processes, which this is, its devices."""
    assert expected == detect(env=environment)


def test_one_method_alone() -> None:
    """The others are not asked."""
    both = {**SLURM, **TORCHRUN}

    assert detect("torchrun", both) == Members("10.0.0.1:29501", 6, 5, (1,))
    assert detect("slurm", TORCHRUN) == Members(None, None, None)
    assert detect("deactivate", both) == Members(None, None, None)


@pytest.mark.parametrize(
    ("method", "environment", "message"),
    [
        ("slrum", {}, "cluster_detection_method='slrum', expected one of environment, slurm"),
        (None, {**TORCHRUN, "RANK": "one"}, "environment variable RANK='one' is not a number"),
    ],
)
def test_what_is_wrong(method, environment, message) -> None:
    """Named in the error."""
    with pytest.raises(ValueError, match=message):
        detect(method, environment)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("one", "one"),
        ("one,two", "one"),
        ("n[003-007],m", "n003"),
        ("n[12,15-17]", "n12"),
        ("r[1-2]n[4,6]", "r1n4"),
        ("n[5]-gpu", "n5-gpu"),
    ],
)
def test_first_host_of_a_list(nodes, host) -> None:
    """As Slurm writes hosts."""
    assert host == first_host(nodes)
