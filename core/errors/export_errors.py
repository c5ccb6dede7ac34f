"""Errors about exported programs."""

from __future__ import annotations

from tracebridge.core.errors.base import TracebridgeError


class ExportError(TracebridgeError, ValueError):
    """A program cannot leave this process, or the consumer cannot take it.

    A program cannot leave this process: it calls Python functions or library functions that only
    this process has registered. Or the library that is to run it is too old, or does not say what
    it can read. Or a saved program that is read here is damaged, or was written by a later
    version.

    Wrong::

        import tempfile

        import tensorflow as tf

        def step(params, x):
            tb.debug.print("x is {}", x)
            return x @ params["w"]

        spec = tf.TensorSpec((None, 3), tf.float32)
        tb.tf.save(step, tempfile.mkdtemp(), [spec], params={"w": tnp.ones((3, 2))})

    Right::

        import tempfile

        import tensorflow as tf

        def step(params, x):
            return x @ params["w"]

        spec = tf.TensorSpec((None, 3), tf.float32)
        tb.tf.save(step, tempfile.mkdtemp(), [spec], params={"w": tnp.ones((3, 2))})
    """
