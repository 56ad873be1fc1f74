from accounting import *  # noqa: F403
