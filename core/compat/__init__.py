"""The interface for extenders that programs of the peer library expect: a compatibility face."""
