"""Ask AccelForge about the files of this directory; `answer.json` gets the columns of its best mapping.

Without its evaluation in detail, which draws the mapping with Graphviz.
"""

import json
from pathlib import Path

import accelforge
from accelforge.mapper.FFM.main import map_workload_to_arch

accelforge.set_n_parallel_jobs(1)
spec = accelforge.Spec.from_yaml("machine.yaml", "workload.yaml")
spec.mapper.metrics = accelforge.Metrics.LATENCY
# Sizes such as 49 pixels on 16 columns have no divisors that fill the array.
spec.mapper.explore_imperfect_spatial_loops = True
found = map_workload_to_arch(
    spec, print_progress=False, print_number_of_pmappings=False, eval_in_detail=False
)
columns = {k: v for k, v in found.to_dict().items() if isinstance(v, int | float)}
Path("answer.json").write_text(json.dumps(columns), encoding="utf-8")
