"""Is it worth joining? Every party's choices on its own test records; a verdict that may be "cannot tell"."""
