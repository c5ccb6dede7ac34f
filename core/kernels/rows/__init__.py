"""Kernels over the rows of arrays.

A softmax or a normalisation reads each row several times: for a maximum, a sum, the result. XLA
makes a pass over the whole array of each; a kernel does all passes over one row while it is in the
nearest cache. Which equations become a kernel says ``core/lowering/rewrites/rows.py``; here is said
what a row is (``frame.py``); such a program is looked at (``program.py``), written as LLVM's text
(``emitter.py``, ``passes.py``), given the interface of XLA's FFI (``handler.py``) and called
(``row_kernel.py``). A kernel computes in float32 or in float64.
"""
