"""Kernels for the CPU that we write as LLVM's text: parts of programs that XLA:CPU does slowly.

``rows`` are passes over the rows of arrays, ``steps`` loops whose steps are small. Here is what
they share: which equations they can have (``equations.py``), elementwise functions
(``functions.py``), XLA's typed FFI (``interface.py``), threads
(``sharing.py``), compilation by llvmlite (``machine.py``, ``waiting.py``), calls (``call.py``), and
what XLA's cost analysis is told (``costs.py``). Without llvmlite there are none.
"""
