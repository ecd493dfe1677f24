"""Building blocks that every reader shares: shapes in, operators of one sub-layer out.

Tensor names are a contract: operators that save one tensor name the same id, so that it counts once. The
layer's input is `x`; each sub-layer reads it or the one before, and adds itself back in `<name>_residual`.
"""
