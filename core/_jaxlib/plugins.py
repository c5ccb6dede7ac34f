"""Device plugins: finding their libraries without importing their Python parts, and loading them.

The packages that bring a CUDA or TPU plugin are written for another library: importing them would
import it. So the shared library is found by package location and the work of their
`initialize()` is done here: preload the vendor's libraries, load the plugin, hand over custom
call handlers and targets, initialise.

A plugin is loaded once for the whole process. If another library loaded it before, its
handle is reused.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import threading
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jaxlib import _jax, utils, xla_client

from tracebridge.core._jaxlib import xla
from tracebridge.core._jaxlib.entry_points import announced_modules
from tracebridge.core._jaxlib.version import JAXLIB_VERSION, parse_version

GROUP = "jax_plugins"
"""Entry point group, and namespace package, under which plugins announce themselves."""

Options = Mapping[str, "str | int | list[int] | float | bool"]


class PluginLoadError(RuntimeError):
    """A plugin was found, but it cannot be loaded or does not fit this jaxlib."""


class PluginSpec:
    """A plugin that is installed: its name, library and the Python packages beside it."""

    __slots__ = ("extension_packages", "library_path", "name", "options")

    def __init__(
        self,
        name: str,
        library_path: str,
        *,
        extension_packages: tuple[str, ...] = (),
        options: Options | None = None,
    ) -> None:
        self.name = name
        """Name for PJRT: 'cuda', 'tpu', or the plugin's own."""
        self.library_path = library_path
        self.extension_packages = extension_packages
        """Packages with kernels and custom call registrations, the preferred first."""
        self.options = dict(options or {})
        """Options for the client."""

    def __repr__(self) -> str:
        return f"PluginSpec({self.name!r}, {self.library_path!r})"


# --- discovery -------------------------------------------------------------------------------


def _package_folder(module: str) -> Path | None:
    """Return the folder of a package without importing it (parents are imported)."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _plugin_modules() -> list[str]:
    """Return module names announced by entry points or lying in the namespace package."""
    names = announced_modules(GROUP)
    try:
        spec = importlib.util.find_spec(GROUP)
    except (ImportError, ValueError):
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        names.update(
            f"{GROUP}.{child.name}" for child in Path(folder).glob("[!_]*") if child.is_dir()
        )
    return sorted(names, reverse=True)  # the newest CUDA first


def _spec_of_module(module: str) -> PluginSpec | None:
    """Return the plugin in the folder of `module`, if it has exactly one plugin library."""
    folder = _package_folder(module)
    if folder is None:
        return None
    leaf = module.rpartition(".")[2]
    cuda = re.fullmatch(r"xla_cuda(\d+)", leaf)
    if cuda is not None:
        library = folder / "xla_cuda_plugin.so"
        packages = (f"jax_cuda{cuda.group(1)}_plugin",)
        return (
            PluginSpec("cuda", str(library), extension_packages=packages)
            if (library.exists())
            else None
        )
    libraries = sorted(folder.glob("*pjrt*.so")) or sorted(folder.glob("*plugin*.so"))
    if len(libraries) != 1:
        return None
    return PluginSpec(leaf, str(libraries[0]))


def parse_plugin_paths(text: str) -> dict[str, PluginSpec]:
    """Return the plugins of 'name:path,name:path', the form of a variable that users set.

    Raises:
        PluginLoadError: if an entry has no name or no path.
    """
    found: dict[str, PluginSpec] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, path = item.partition(":")
        if not name or not path:
            raise PluginLoadError(f"plugin list entry {item!r}: expected the form name:path")
        found[name] = PluginSpec(name, path)
    return found


def discover_plugins() -> dict[str, PluginSpec]:
    """Return the installed plugins by name; nothing is loaded."""
    found: dict[str, PluginSpec] = {}
    for module in _plugin_modules():
        spec = _spec_of_module(module)
        if spec is not None:
            found.setdefault(spec.name, spec)
    libtpu = _package_folder("libtpu")
    if libtpu is not None and (libtpu / "libtpu.so").exists():
        found.setdefault("tpu", PluginSpec("tpu", str(libtpu / "libtpu.so")))
    return found


# --- loading ---------------------------------------------------------------------------------

# Package below `nvidia`, and the libraries in its lib folder, in the order of their dependencies.
# CUDA 12 has one package for each library, CUDA 13 has one for nearly all.
_NVIDIA_LIBRARIES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "12": (
        ("cuda_runtime", ("libcudart.so.12",)),
        ("cuda_nvrtc", ("libnvrtc.so.12",)),
        ("nvjitlink", ("libnvJitLink.so.12",)),
        ("cublas", ("libcublasLt.so.12", "libcublas.so.12")),
        ("nccl", ("libnccl.so.2",)),
        ("cuda_cupti", ("libcupti.so.12",)),
        ("cusparse", ("libcusparse.so.12",)),
        ("cusolver", ("libcusolver.so.11",)),
        ("cufft", ("libcufft.so.11",)),
        ("nvshmem", ("libnvshmem_host.so.3",)),
        ("cudnn", ("libcudnn.so.9",)),
    ),
    "13": (
        (
            "cu13",
            (
                "libcudart.so.13",
                "libnvrtc.so.13",
                "libnvJitLink.so.13",
                "libcublasLt.so.13",
                "libcublas.so.13",
                "libcupti.so.13",
                "libcusparse.so.12",
                "libcusolver.so.12",
                "libcufft.so.12",
            ),
        ),
        ("nccl", ("libnccl.so.2",)),
        ("nvshmem", ("libnvshmem_host.so.3",)),
        ("cudnn", ("libcudnn.so.9",)),
    ),
}

# Extension modules of the CUDA plugin package with custom call targets. Where the names do not
# tell the version of the FFI, all of them are typed.
_NAMED_FFI = ("_solver", "_prng", "_sparse", "_rnn")
_TYPED_FFI = ("_hybrid", "_linalg", "_triton")

_lock = threading.Lock()
_loaded: dict[str, Any] = {}


def preload_nvidia_libraries(cuda_version: str) -> list[str]:
    """Load NVIDIA's libraries of the pip packages, so that the plugin finds these copies.

    Returns the paths that were loaded; a missing package is no error, because the libraries may
    be installed in the system instead.
    """
    done: list[str] = []
    for package, libraries in _NVIDIA_LIBRARIES.get(cuda_version, ()):
        folder = _package_folder(f"nvidia.{package}")
        if folder is None:
            continue
        for library in libraries:
            path = str(folder / "lib" / library)
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue
            done.append(path)
    return done


def _check_extension_version(package: str) -> None:
    """Raise if the kernels of a plugin package were built for another jaxlib.

    Raises:
        PluginLoadError: if the versions differ.
    """
    version = parse_version(importlib.import_module(f"{package}.version").__version__)
    if version != JAXLIB_VERSION:
        ours, theirs = (".".join(map(str, v)) for v in (JAXLIB_VERSION, version))
        raise PluginLoadError(
            f"plugin package {package} {theirs} is installed with jaxlib {ours}; they must have "
            f"the same version: pip install '{package.replace('_', '-')}=={ours}'"
        )


def _extension_package(spec: PluginSpec) -> str | None:
    """Return the first installed kernel package of a plugin, checked, or None."""
    for package in spec.extension_packages:
        if _package_folder(package) is not None:
            _check_extension_version(package)
            return package
    if spec.extension_packages:
        warnings.warn(
            f"the kernels of plugin {spec.name!r} are not installed "
            f"({', '.join(spec.extension_packages)}): linear algebra, sparse products and "
            "Python callbacks will not work on it",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _register_cuda_kernels(package: str, c_api: Any) -> None:
    """Hand the custom call targets of the CUDA plugin package to XLA."""
    extension = importlib.import_module(f"{package}.cuda_plugin_extension")
    register = partial(xla_client.register_custom_call_target, platform="CUDA")
    xla_client.register_custom_type_handler("CUDA", partial(extension.register_custom_type, c_api))
    xla_client.register_custom_call_handler(
        "CUDA", partial(extension.register_custom_call_target, c_api)
    )
    for name, value in extension.ffi_types().items():
        xla_client.register_custom_type(name, value, platform="CUDA")
    for name, value in extension.ffi_handlers().items():
        register(name, value, api_version=1)
    for module in _NAMED_FFI + _TYPED_FFI:
        try:
            kernels = importlib.import_module(f"{package}.{module}")
        except ImportError:
            continue  # not every version has every module, and each needs its own vendor library
        for name, value in kernels.registrations().items():
            typed = module in _TYPED_FFI or name.endswith("_ffi")
            register(name, value, api_version=int(typed))
        if module == "_triton":
            register("triton_kernel_call", kernels.get_custom_call(), api_version=0)


def load_plugin(spec: PluginSpec) -> Any:
    """Load a plugin's library into the process, once, and return its C API handle.

    The handle is None if another library had loaded the plugin and jaxlib cannot hand it out;
    then that library has registered the kernels too.

    Raises:
        PluginLoadError: if the library or its kernels do not fit.
    """
    with _lock:
        if spec.name in _loaded:
            return _loaded[spec.name]
        c_api = _load(spec)
        _loaded[spec.name] = c_api
        return c_api


def _load(spec: PluginSpec) -> Any:
    package = _extension_package(spec)
    cuda = re.search(r"cuda(\d+)", package or spec.library_path) if spec.name == "cuda" else None
    if cuda is not None:
        preload_nvidia_libraries(cuda.group(1))
    if xla_client.pjrt_plugin_loaded(spec.name):
        get = getattr(_jax, "get_pjrt_plugin", None)
        c_api = None if get is None else get(spec.name)
    else:
        utils.absl_set_min_log_level(1)  # loading prints informational lines to stderr
        try:
            c_api = xla_client.load_pjrt_plugin_dynamically(spec.name, spec.library_path)
        except xla.XlaRuntimeError as exc:
            raise PluginLoadError(
                f"plugin {spec.name!r}: cannot load {spec.library_path}: {exc}"
            ) from exc
        profiler = importlib.import_module("jaxlib._profiler")
        profiler.register_plugin_profiler(c_api)
    if cuda is not None and package is not None and c_api is not None:
        _register_cuda_kernels(package, c_api)
    return c_api


def default_options(spec: PluginSpec) -> dict[str, Any]:
    """Return the client options of a plugin before the user's: memory settings on CUDA."""
    options: dict[str, Any] = {}
    if spec.name == "cuda":
        options.update(xla_client.generate_pjrt_gpu_plugin_options())
    options.update(spec.options)
    return options


def make_plugin_client(
    spec: PluginSpec | str,
    options: Options | None = None,
    *,
    distributed_client: Any = None,
) -> xla.Client:
    """Load a plugin if needed and return a new client of it.

    Raises:
        PluginLoadError: if there is no such plugin, or it finds no device.
    """
    if isinstance(spec, str):
        name, discovered = spec, discover_plugins()
        if name not in discovered:
            raise PluginLoadError(f"no plugin {name!r} is installed; found: {sorted(discovered)}")
        spec = discovered[name]
    load_plugin(spec)
    merged = {**default_options(spec), **(options or {})}
    try:
        if not xla_client.pjrt_plugin_initialized(spec.name):
            xla_client.initialize_pjrt_plugin(spec.name)
        return xla.make_plugin_client(spec.name, merged, distributed_client=distributed_client)
    except xla.XlaRuntimeError as exc:
        raise PluginLoadError(f"plugin {spec.name!r} cannot start: {exc}") from exc
