"""The tile program: the one text form for everything between tiling and warps (docs/ir.md).

`sw.ir.parse` reads it, `str` writes it; both directions are inverse to each other. `sw.ir.load` reads and
checks a file, `sw.ir.builder` makes programs from Python, `sw.ir.mlir` exports them.
"""
