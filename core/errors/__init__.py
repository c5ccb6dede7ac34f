"""Every exception and warning class of the engine, and traceback filtering.

Import a class from the file that defines it; this package file is empty so that importing one
class does not load them all.
"""
