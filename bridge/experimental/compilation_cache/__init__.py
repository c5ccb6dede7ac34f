"""The persistent compilation cache under the names of older programs."""

from __future__ import annotations
