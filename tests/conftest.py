"""Settings for every test."""

from hypothesis import settings

# Examples are timed by the wall, and the machine may be busy with an engine.
settings.register_profile("flashstate", deadline=None)
settings.load_profile("flashstate")
