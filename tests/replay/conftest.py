from hypothesis import settings

# A machine that is busy with something else is no bug of ours.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
