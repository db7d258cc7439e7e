"""Warp sequencers, sync channels, issue and host registers."""
