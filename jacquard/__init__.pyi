# What editors and type checkers see of the names that `__init__.py` imports when they are used.
from hw.errors import InputError as InputError
from jacquard.hardware import Machine as Machine
from jacquard.hardware import machine as machine
from jacquard.loops import map_loop as map_loop
from jacquard.operands import Column as Column
from jacquard.operands import Row as Row
from jacquard.operands import Scalar as Scalar
from jacquard.operands import Tile as Tile
from jacquard.problems import Problem as Problem
from jacquard.problems import conv as conv
from jacquard.problems import epilogue as epilogue
from jacquard.problems import matmul as matmul
from jacquard.session import Model as Model
from jacquard.session import compile as compile
from jacquard.session import load as load
from jacquard.studies import explore as explore

__version__: str
