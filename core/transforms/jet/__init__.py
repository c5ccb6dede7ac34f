"""Taylor mode: functions applied to truncated power series."""
