"""Other tools' predictions beside ours: ZigZag, Stream, SCALE-Sim and AccelForge, layer by layer."""
