"""Second implementations of slow and obvious things, each beside its plain twin and tested against it."""
