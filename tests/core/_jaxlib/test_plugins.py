"""Plugins are found by location, without importing them; versions are compared before loading."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracebridge.core._jaxlib import plugins
from tracebridge.core._jaxlib.plugins import PluginLoadError, PluginSpec

POISON = "raise RuntimeError('the Python part of a plugin was imported')\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"jax_plugins", "libtpu", "jax_cuda13_plugin"}:
            del sys.modules[name]


def package(site: Path, name: str, *files: str, code: str = POISON) -> Path:
    """Make a package with empty files."""
    folder = site.joinpath(*name.split("."))
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    for file in files:
        (folder / file).touch()
    return folder


def test_cuda_is_found_beside_its_library(site: Path) -> None:
    """The newest CUDA wins; the kernel package follows from the name; nothing is imported."""
    package(site, "jax_plugins.xla_cuda12", "xla_cuda_plugin.so")
    folder = package(site, "jax_plugins.xla_cuda13", "xla_cuda_plugin.so")

    cuda = plugins.discover_plugins()["cuda"]

    assert cuda.library_path == str(folder / "xla_cuda_plugin.so")
    assert cuda.extension_packages == ("jax_cuda13_plugin",)
    assert "jax_plugins.xla_cuda13" not in sys.modules


def test_a_package_without_library_is_no_plugin(site: Path) -> None:
    """A half-installed plugin is left out."""
    package(site, "jax_plugins.xla_cuda13")

    assert "cuda" not in plugins.discover_plugins()


def test_tpu_is_found_by_its_package(site: Path) -> None:
    """libtpu announces no entry point."""
    folder = package(site, "libtpu", "libtpu.so")

    assert plugins.discover_plugins()["tpu"].library_path == str(folder / "libtpu.so")


def test_other_plugins_are_found_by_their_only_library(site: Path) -> None:
    """A third party's plugin has the name of its module; two libraries are ambiguous."""
    package(site, "jax_plugins.mine", "pjrt_plugin_mine.so")
    package(site, "jax_plugins.unclear", "pjrt_a.so", "pjrt_b.so")

    found = plugins.discover_plugins()
    assert found["mine"].library_path.endswith("pjrt_plugin_mine.so")
    assert "unclear" not in found


def test_plugin_list_of_a_variable() -> None:
    """name:path pairs; anything else is refused."""
    found = plugins.parse_plugin_paths("a:/lib/a.so, b:/lib/b.so,")

    assert {name: spec.library_path for name, spec in found.items()} == {
        "a": "/lib/a.so",
        "b": "/lib/b.so",
    }
    with pytest.raises(PluginLoadError, match="name:path"):
        plugins.parse_plugin_paths("just-a-name")


def test_kernels_of_another_version_are_refused(site: Path) -> None:
    """Mixed versions crash later; the message has the command that repairs it."""
    folder = package(site, "jax_cuda13_plugin", code="")
    (folder / "version.py").write_text("__version__ = '0.1.2'\n")
    spec = PluginSpec("cuda", "/none/cuda13.so", extension_packages=("jax_cuda13_plugin",))

    with pytest.raises(PluginLoadError, match=r"0\.1\.2 .* pip install 'jax-cuda13-plugin=="):
        plugins.load_plugin(spec)


def test_missing_kernels_are_a_warning_and_a_missing_library_an_error() -> None:
    """A plugin without kernels can still do most things; without a library nothing."""
    spec = PluginSpec("nothing", "/none/plugin.so", extension_packages=("no_such_package",))

    with (
        pytest.warns(RuntimeWarning, match="linear algebra"),
        pytest.raises(PluginLoadError, match=r"/none/plugin\.so"),
    ):
        plugins.load_plugin(spec)


def test_an_unknown_name_lists_what_is_installed(site: Path) -> None:
    """A misspelt platform is found by comparing."""
    package(site, "libtpu", "libtpu.so")

    with pytest.raises(PluginLoadError, match=r"no plugin 'gpu0'.*'tpu'"):
        plugins.make_plugin_client("gpu0")


def test_cuda_options_come_from_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual memory variables work; options of the spec win."""
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.25")
    spec = PluginSpec("cuda", "/none", options={"preallocate": False})

    options = plugins.default_options(spec)
    assert options["memory_fraction"] == 0.25
    assert options["preallocate"] is False
    assert plugins.default_options(PluginSpec("tpu", "/none")) == {}
