"""Images of other sizes."""

from __future__ import annotations

from tracebridge.core.errors.filtering import publish as _publish
from tracebridge.image.scale import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

_publish(globals(), __name__)
