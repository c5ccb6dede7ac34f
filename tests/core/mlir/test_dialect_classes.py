"""The Python part of dialects: not loaded by who builds modules, there for who reads them."""

import subprocess
import sys

PROGRAM = """
import sys
import tracebridge as tb
import tracebridge.numpy as tnp

lowered = tb.jit(lambda x: tnp.where(x @ x > 1, x, 0)).lower(tnp.ones((16, 16)))
assert "jaxlib.mlir.dialects.stablehlo" not in sys.modules
assert "jaxlib.mlir.dialects._stablehlo_ops_gen" not in sys.modules
module = lowered.compiler_ir("stablehlo")
function = module.body.operations[0]
print(type(function).__name__)
print({type(op).__name__ for op in function.entry_block.operations} >= {"DotGeneralOp", "ReturnOp"})
"""


def test_lowering_loads_no_dialect_classes_and_readers_get_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["FuncOp", "True"]
