"""Settings for every test."""

import signal

from hypothesis import settings

# Examples are timed by the wall, and the machine may be busy with an engine.
settings.register_profile("flashstate", deadline=None)
settings.load_profile("flashstate")

# Some send signals to programs they start, which inherit what nohup, or a script's background, has switched off.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
