"""Which modules are public: the one list that the API test and the doctests share."""

from __future__ import annotations

import importlib
import inspect
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BRIDGE = Path(__file__).resolve().parents[1] / "bridge"

# Every package of bridge/ and every file directly in it is public unless its name starts with an
# underscore.
# Deeper files implement one section of a package and are private, except these.
PUBLIC_FILES = frozenset(
    {
        "example_libraries/optimizers.py",
        "example_libraries/stax.py",
        "experimental/array_serialization/pytree_serialization.py",
        "experimental/buffer_callback.py",
        "experimental/checkify.py",
        "experimental/compute_on.py",
        "experimental/ode.py",
        "experimental/random.py",
        "experimental/custom_dce.py",
        "experimental/hijax.py",
        "experimental/jax2tf.py",
        "experimental/custom_partitioning.py",
        "experimental/jet.py",
        "experimental/compilation_cache/compilation_cache.py",
        "experimental/key_reuse.py",
        "experimental/layout.py",
        "experimental/mesh_utils.py",
        "experimental/multihost_utils.py",
        "experimental/rnn.py",
        "experimental/scheduling_groups.py",
        "experimental/serialize_executable.py",
        "experimental/shard_alike.py",
        "experimental/shard_map.py",
        "experimental/topologies.py",
        "experimental/xla_metadata.py",
        "extend/backend.py",
        "extend/core/primitives.py",
        "extend/linear_util.py",
        "extend/random.py",
        "extend/source_info_util.py",
        "interpreters/ad.py",
        "interpreters/batching.py",
        "interpreters/mlir.py",
        "interpreters/partial_eval.py",
        "interpreters/pxla.py",
        "interpreters/xla.py",
        "lax/linalg.py",
        "numpy/fft.py",
        "scipy/cluster/vq.py",
        "scipy/fft.py",
        "scipy/integrate.py",
        "scipy/interpolate.py",
        "scipy/ndimage.py",
        "scipy/optimize.py",
        "scipy/signal.py",
        "scipy/sparse/linalg.py",
        "scipy/spatial.py",
        "scipy/spatial/transform.py",
        "scipy/special.py",
        "scipy/linalg.py",
        "nn/initializers.py",
    }
)
# Packages that only group the files of one implementation.
PRIVATE_PACKAGES = frozenset({"torch/from_torch/aten", "tf/native"})
SCIPY_STATS = "scipy/stats/"  # each distribution is a public module: stats.norm.pdf
FRAMEWORK_OF = {"torch": "torch", "tf": "tensorflow", "experimental/jax2tf.py": "tensorflow"}


def public_modules() -> list[str]:
    """Import names of all public modules, sorted, frameworks that are not installed left out."""
    return sorted(
        module_name(path)
        for file in BRIDGE.rglob("*.py")
        if is_public(path := file.relative_to(BRIDGE).as_posix()) and is_available(path)
    )


def is_public(path: str) -> bool:
    """Whether a file of bridge/, given relative to it, is a public module."""
    parts = Path(path).with_suffix("").parts
    if "__pycache__" in parts or any(p.startswith("_") and p != "__init__" for p in parts):
        return False
    if parts[-1] == "__init__":
        folder = "/".join(parts[:-1])
        return not any(folder == p or folder.startswith(f"{p}/") for p in PRIVATE_PACKAGES)
    return len(parts) == 1 or path in PUBLIC_FILES or path.startswith(SCIPY_STATS)


def is_available(path: str) -> bool:
    """Whether the framework that the file needs is installed."""
    folder = path.partition("/")[0].removesuffix(".py")
    framework = FRAMEWORK_OF.get(path, FRAMEWORK_OF.get(folder))
    return framework is None or find_spec(framework) is not None


def module_name(path: str) -> str:
    """The import name of a file of bridge/."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(("tracebridge", *parts))


def public_names(module: str) -> dict[str, Any]:
    """Public names of a module and their objects.

    `__all__` decides; a module without one offers what has no underscore, submodules excepted.
    """
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(loaded).items()
            if not name.startswith("_")
            and not isinstance(value, types.ModuleType)
            and name != "annotations"
        ]
    return {name: getattr(loaded, name) for name in sorted(names)}


def is_ours(value: object) -> bool:
    """Whether an object was written here: NumPy's dtypes and the like are only passed on."""
    return str(getattr(value, "__module__", "")).startswith("tracebridge")


def is_function(value: object) -> bool:
    """Whether a public object is called like a function: a def, or a wrapper of one."""
    return callable(value) and not inspect.isclass(value)
