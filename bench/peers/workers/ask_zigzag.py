"""Ask ZigZag about the files of this directory; its own `dump/overall_simple.json` is the answer."""

import logging

from zigzag.api import get_hardware_performance_zigzag

logging.disable(logging.WARNING)
get_hardware_performance_zigzag(
    "workload.yaml",
    "machine.yaml",
    "mapping.yaml",
    opt="latency",
    dump_folder="dump",
    loma_show_progress_bar=False,
)
