"""Windows as the hospital's programs see it, played on Linux.

Attributes:
    is_played: whether this process plays it, with `stand_in` in place of modules and calls.
"""

is_played = False
