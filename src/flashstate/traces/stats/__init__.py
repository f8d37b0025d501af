"""Statistics of recorded sessions: collected session by session, shown as tables or JSON.

`collect` gathers, `tables` names and orders the figures, `show` prints them. Imports the traces package only.
"""
