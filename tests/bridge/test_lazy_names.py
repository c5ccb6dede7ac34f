"""Names that packages load at their first use are there for those who walk through a package."""

from __future__ import annotations

import os
import subprocess
import sys

_CODE = """
import sys, types
import tracebridge.numpy as tnp
from tracebridge.numpy import sin
assert "tracebridge.numpy.polynomial" not in sys.modules
names = vars(tnp)
assert set(tnp.__all__) <= names.keys() and {"fft", "linalg"} <= names.keys()
assert type(tnp) is types.ModuleType and vars(tnp) is names
"""


def test_namespaces_are_whole_when_asked_for():
    """``vars()`` of a package holds what it has not loaded yet; imports of names load no others."""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    subprocess.run([sys.executable, "-c", _CODE], check=True, env={**os.environ, **paths})
