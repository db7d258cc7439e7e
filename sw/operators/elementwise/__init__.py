"""Elementwise operators: functions of real numbers and of integers, and their tiles."""
