"""Maximum and average pooling, and means."""
