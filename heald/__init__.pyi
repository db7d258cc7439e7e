# What editors and type checkers see of the names that `__init__.py` imports when they are used.
from cosim.waves import Waves as Waves
from heald.hardware import Machine as Machine
from heald.hardware import machine as machine
from heald.loops import map_loop as map_loop
from heald.operands import Column as Column
from heald.operands import Row as Row
from heald.operands import Scalar as Scalar
from heald.operands import Tile as Tile
from heald.problems import Problem as Problem
from heald.problems import conv as conv
from heald.problems import epilogue as epilogue
from heald.problems import matmul as matmul
from heald.session import Model as Model
from heald.session import compare as compare
from heald.session import compile as compile
from heald.session import load as load
from heald.studies import explore as explore
from hw.errors import InputError as InputError

__version__: str
