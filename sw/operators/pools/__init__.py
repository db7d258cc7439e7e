"""Maxima and averages of windows of images, means."""
