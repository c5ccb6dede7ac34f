"""Loops whose steps are small, as one kernel.

A step of a recurrent network takes some microseconds of work; XLA runs it as a dozen operations,
and each costs as much as a part of the work. A kernel does all steps: matrix products, elementwise
equations and sums are loops in one function, its arrays stay in the nearest cache. Which loops
become a kernel says ``core/lowering/rewrites/steps.py``; here the body is planned (``plan.py``:
what is in memory, and where; ``moves.py`` and ``contractions.py``: the equations), written as
LLVM's text (``elementwise.py``, ``products.py``, ``dots.py``, ``reductions.py``, ``writer.py``) and
called (``scan_kernel.py``).
"""
