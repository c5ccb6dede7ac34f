"""Programs as text: what a graph of another framework can hold, and any process can read.

The text is ``tracebridge-program:<format>:<digest>:<data>``. The data are a header of JSON and
blocks of bytes, compressed, in base64. Nothing in it is executed by reading it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.export_errors import ExportError

MAGIC = "tracebridge-program"
FORMAT = 1
"""Changes when older versions could not read what is written."""

_LENGTH = struct.Struct("<Q")


def pack(header: dict[str, Any], blocks: Sequence[bytes]) -> str:
    """The text of a header, of what JSON can hold, and blocks of bytes."""
    head = json.dumps({**header, "blocks": [len(b) for b in blocks]}).encode()
    data = zlib.compress(b"".join([_LENGTH.pack(len(head)), head, *blocks]))
    return f"{MAGIC}:{FORMAT}:{_digest(data)}:{base64.b64encode(data).decode()}"


def unpack(text: str, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Header and blocks of a text.

    Args:
        text: what ``pack`` gave.
        name: what messages call the program.

    Raises:
        ExportError: the text is damaged, or of a later format.
    """
    magic, _, rest = text.partition(":")
    number, _, rest = rest.partition(":")
    digest, _, encoded = rest.partition(":")
    if magic != MAGIC or not number.isdigit():
        raise damaged(name, "it does not begin as programs do")
    if int(number) > FORMAT:
        msg = f"{name}: the saved program is of format {number}, written by a later tracebridge"
        raise ExportError(msg, expected=f"format {FORMAT}", hint="install a newer tracebridge")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise damaged(name, "it is no base64") from error
    if _digest(data) != digest:
        raise damaged(name, "its digest is another one")
    try:
        return _parts(zlib.decompress(data))
    except (zlib.error, struct.error, ValueError, KeyError, TypeError) as error:
        raise damaged(name, "its parts cannot be read") from error


def _parts(body: bytes) -> tuple[dict[str, Any], list[bytes]]:
    start = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    header = json.loads(body[_LENGTH.size : start])
    blocks: list[bytes] = []
    for length in header["blocks"]:
        blocks.append(body[start : start + length])
        start += length
    return header, blocks


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def damaged(name: str, why: str) -> ExportError:
    """The error of a text that ``pack`` did not write so."""
    msg = f"{name}: the saved program is damaged: {why}"
    return ExportError(msg, hint="save it again, or copy the whole file")
