"""scan: a loop over the leading axis of arrays, with a carry."""
