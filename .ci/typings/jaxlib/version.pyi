# jaxlib ships no types for its extension modules: everything in it is Any, so that strict checking
# of our own code
# goes on where a value of jaxlib comes in.
from typing import Any

def __getattr__(name: str) -> Any: ...
