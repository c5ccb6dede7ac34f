"""Which processes belong to a program, as those who start them tell it in the environment.

A starter is asked only for what nobody has said. Each gives the address of process 0, how many
processes there are, which this one is, and, where several share a machine with accelerators, which
of its devices are for this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tracebridge.core.config.env import all_variables

Environment = Mapping[str, str]

# Where no port is given it is made of the number of the job, so that two jobs on a machine differ.
_FIRST_PORT, _PORTS = 61440, 4096


class Members(NamedTuple):
    """Who takes part; None where nobody says it."""

    address: str | None
    """Host and port of process 0."""
    n_processes: int | None
    process_id: int | None
    local_device_ids: tuple[int, ...] | None = None


def port_of_job(job: str) -> int:
    """A port for the job of this number."""
    digits = re.sub(r"\D", "", job)
    return _FIRST_PORT + int(digits or "0") % _PORTS


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it: ``a[1-3,7],b`` gives ``a1``.

    >>> first_host("node[003-007,12],other"), first_host("host1,host2"), first_host("rack2-[8,9]x")
    ('node003', 'host1', 'rack2-8x')
    """
    depth, end = 0, len(nodes)
    for i, char in enumerate(nodes):
        depth += (char == "[") - (char == "]")
        if char == "," and not depth:
            end = i
            break
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", nodes[:end])


def of_variables(env: Environment) -> Members | None:
    """From our own variables."""
    names = [f"TRACEBRIDGE_{n}" for n in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID")]
    if not any([name in env for name in names]):
        return None
    address, count, index = [env.get(name) for name in names]
    return Members(address, _number(names[1], count), _number(names[2], index))


def of_torchrun(env: Environment) -> Members | None:
    """From ``torchrun``, whose processes talk at MASTER_PORT; ours at the port after it."""
    if not {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"} <= set(env):
        return None
    port = _needed("MASTER_PORT", env) + 1
    local = (_needed("LOCAL_RANK", env),) if "LOCAL_RANK" in env else None
    address = f"{env['MASTER_ADDR']}:{port}"
    return Members(address, _needed("WORLD_SIZE", env), _needed("RANK", env), local)


def of_slurm(env: Environment) -> Members | None:
    """From ``srun``: a process for each task of a step."""
    nodes = env.get("SLURM_STEP_NODELIST")
    if nodes is None or "SLURM_PROCID" not in env or "SLURM_JOB_ID" not in env:
        return None
    count = _needed(
        "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS", env
    )
    local = (_needed("SLURM_LOCALID", env),) if "SLURM_LOCALID" in env else None
    address = f"{first_host(nodes)}:{port_of_job(env['SLURM_JOB_ID'])}"
    return Members(address, count, _needed("SLURM_PROCID", env), local)


def of_open_mpi(env: Environment) -> Members | None:
    """From ``mpirun`` of Open MPI, which gives the addresses of the machine that started it."""
    if "OMPI_COMM_WORLD_RANK" not in env or "OMPI_COMM_WORLD_SIZE" not in env:
        return None
    job, host = _job_and_host(env)
    local = None
    if "OMPI_COMM_WORLD_LOCAL_RANK" in env:
        local = (_needed("OMPI_COMM_WORLD_LOCAL_RANK", env),)
    address = None if host is None else f"{host}:{port_of_job(job)}"
    count, index = _needed("OMPI_COMM_WORLD_SIZE", env), _needed("OMPI_COMM_WORLD_RANK", env)
    return Members(address, count, index, local)


def _job_and_host(env: Environment) -> tuple[str, str | None]:
    # Version 4: 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    # Version 5: prterun-host-12345@0.0;tcp4://10.96.0.1:34911
    server = env.get("OMPI_MCA_orte_hnp_uri") or env.get("PMIX_SERVER_URI41", "")
    job, _, addresses = server.partition(";")
    found = re.search(r"tcp4?://([^,:;]+)", addresses)
    return job.partition("@")[0].partition(".")[0], found.group(1) if found else None


def of_kubernetes(env: Environment) -> Members | None:
    """From an indexed Job of Kubernetes behind a headless service that is called as the job is.

    The number of pods is not in the environment: give it, or set TRACEBRIDGE_NUM_PROCESSES.
    """
    if "KUBERNETES_SERVICE_HOST" not in env or "JOB_COMPLETION_INDEX" not in env:
        return None
    index = _needed("JOB_COMPLETION_INDEX", env)
    job, dash, last = env.get("HOSTNAME", "").rpartition("-")
    if not dash or last != str(index):
        return Members(None, None, index)
    return Members(f"{job}-0.{job}:{port_of_job(job)}", None, index)


METHODS: Mapping[str, Callable[[Environment], Members | None]] = {
    "environment": of_variables,
    "slurm": of_slurm,
    "ompi": of_open_mpi,
    "torchrun": of_torchrun,
    "k8s": of_kubernetes,
}
"""By the name of the method, in the order in which they are asked."""


def detect(method: str | None = None, env: Environment | None = None) -> Members:
    """What the starter of this process says; nothing, if none is known.

    Args:
        method: one of ``METHODS``; None asks all, and "deactivate" none.
        env: the environment, by default that of the process.

    Raises:
        ValueError: there is no such method, or a variable has no number.
    """
    if method == "deactivate":
        return Members(None, None, None)
    if method is not None and method not in METHODS:
        known = ", ".join([*METHODS, "deactivate"])
        raise ValueError(f"cluster_detection_method={method!r}, expected one of {known}")
    chosen = list(METHODS) if method is None else [method]
    found = [METHODS[name](all_variables() if env is None else env) for name in chosen]
    return merged([members for members in found if members is not None])


def merged(found: Sequence[Members]) -> Members:
    """What the first says who says it."""
    columns: Any = zip(*found, strict=True) if found else [()] * len(Members._fields)
    return Members(*[next((v for v in column if v is not None), None) for column in columns])


def _needed(name: str, env: Environment) -> int:
    number = _number(name, env[name])
    assert number is not None
    return number


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"environment variable {name}={text!r} is not a number") from None
