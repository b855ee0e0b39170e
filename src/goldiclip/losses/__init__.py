"""The equations: tensors in, scalar out. The mean over ranks of what a loss returns is the global loss."""
