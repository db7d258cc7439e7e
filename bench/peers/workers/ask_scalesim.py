"""Ask SCALE-Sim about the files of this directory; `answer.json` gets the cycles of its array.

Its array is simulated, fold by fold, with a memory in place of its own that never stalls. Nor does its own
with `InterfaceBandwidth = CALC`, which takes ten times as long for the same cycles.
"""

import json
from pathlib import Path

import numpy as np
from scalesim.layout_utils import layouts
from scalesim.scale_config import scale_config
from scalesim.single_layer_sim import single_layer_sim
from scalesim.topology_utils import topologies


class Ideal:
    """A memory that answers every request in its cycle."""

    cycles = 0

    def service_memory_requests(self, ifmap: np.ndarray, filters: np.ndarray, ofmap: np.ndarray) -> None:
        """One line of each is one cycle of the array; the first is in cycle 0."""
        self.cycles = len(ofmap) - 1


config, topology, layout, memory = scale_config(), topologies(), layouts(), Ideal()
config.read_conf_file("machine.cfg")
gemm = Path("form").read_text(encoding="utf-8") == "gemm"
topology.load_arrays(topofile="layer.csv", mnk_inputs=gemm)
layout.load_arrays(layoutfile="layout.csv", mnk_inputs=gemm)
layer = single_layer_sim()
layer.set_params(layer_id=0, config_obj=config, topology_obj=topology, layout_obj=layout, verbose=False)
layer.set_memory_system(memory)
layer.run()
Path("answer.json").write_text(json.dumps({"cycles": memory.cycles}), encoding="utf-8")
