"""A program of the machine for operators of a model: what running it needs, and what bounds each operator.

The same whether it comes from the compiler or from a directory (`jacquard.bundle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hw.config import PORTS, MachineConfig
from hw.fabric.bitstream import ArrayEntry
from hw.layout import CGRA_UNIT
from sw.cgra.verify import verify
from sw.compile.memory import Home, Kind
from sw.compile.pipeline import Compiled
from sw.dfg.graph import Graph
from sw.ir.expression import evaluate
from sw.ir.intrinsics import KEEP
from sw.ir.program import For, If, Instruction, Program, Region, Statement
from sw.kernels.configuration import Configured
from sw.network.network import ImageConvolution, MatrixProduct, Operator, View
