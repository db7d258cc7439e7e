"""What all tests share: properties have no deadline, because the machine may be busy."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("jacquard", deadline=None)
settings.load_profile("jacquard")
