"""One module, or package, for each kind of operator; `sw.operators.registry` finds what they register.

Importing this package imports all of them.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
