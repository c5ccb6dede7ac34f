"""Programs as bytes or text: what a file or a graph of another framework can hold.

They are ``tracebridge-program:<format>:<digest>:<data>``. The data are a header of JSON and blocks
of bytes, compressed, and in texts in base64. Nothing in them is executed by reading them.
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
    data = _compressed(header, blocks)
    return _head(data) + base64.b64encode(data).decode()


def pack_bytes(header: dict[str, Any], blocks: Sequence[bytes]) -> bytes:
    """The same as bytes, a quarter smaller."""
    data = _compressed(header, blocks)
    return _head(data).encode() + data


def unpack(text: str, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Header and blocks of a text.

    Args:
        text: what ``pack`` gave.
        name: what messages call the program.

    Raises:
        ExportError: the text is damaged, or of a later format.
    """
    digest, encoded = _split(*text.split(":", 3), name=name)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise damaged(name, "it is no base64") from error
    return _read(data, digest, name)


def unpack_bytes(blob: bytes, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Header and blocks of what ``pack_bytes`` gave, as ``unpack`` of what ``pack`` gave."""
    *head, data = blob.split(b":", 3)
    digest, _ = _split(*[h.decode(errors="replace") for h in head], "", name=name)
    return _read(data, digest, name)


def _compressed(header: dict[str, Any], blocks: Sequence[bytes]) -> bytes:
    head = json.dumps({**header, "blocks": [len(b) for b in blocks]}).encode()
    return zlib.compress(b"".join([_LENGTH.pack(len(head)), head, *blocks]))


def _head(data: bytes) -> str:
    return f"{MAGIC}:{FORMAT}:{_digest(data)}:"


def _split(*parts: str, name: str) -> tuple[str, str]:
    """Digest and data of the parts between colons."""
    magic, number, digest, data = (*parts, "", "", "", "")[:4]
    if magic != MAGIC or not (number.isascii() and number.isdigit()):
        raise damaged(name, "it does not begin as programs do")
    if int(number) > FORMAT:
        msg = f"{name}: the saved program is of format {number}, written by a later tracebridge"
        raise ExportError(msg, expected=f"format {FORMAT}", hint="install a newer tracebridge")
    return digest, data


def _read(data: bytes, digest: str, name: str) -> tuple[dict[str, Any], list[bytes]]:
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
